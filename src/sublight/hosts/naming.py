"""What a machine is called in a record: nothing that says who logs in, or where it is."""

import ipaddress
import re


def name_kept(typed: str) -> str:
    """A host as the reader typed it, without who logs in; an address is no name and is not kept."""
    name = typed.rpartition("@")[2]
    address = re.sub(r"%\w+", "", re.sub(r"^\[(.*)\](?::[0-9]+)?$|^([^:]*):[0-9]+$", r"\1\2", name))
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return name
    return "a host over ssh"
