"""What names a machine, a card or a person does not get into a record."""

import pytest

from sublight.hosts.base import Completed
from sublight.tuning.clean import clean, clean_text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("    Serial Number                      : 1320022032114", "1320022032114"),
        ("    GPU UUID                  : GPU-7a0b1c2d-1234-5678-9abc-def012345678", "7a0b1c2d"),
        ("\tCapabilities: [2f4 v1] Device Serial Number 4a-5b-6c-7d-8e-9f-00-11", "4a-5b"),
        ("ether 52:54:00:12:34:56 txqueuelen 1000", "52:54:00"),
        ("inet 192.0.2.17 netmask 255.255.255.0", "192.0.2.17"),
        ("        Process ID                     : 4242", "4242"),
        ("            Name                       : /home/someone/venv/bin/python", "someone"),
        ("|    0   N/A  N/A           48613      C   /home/someone/bin/python              80000MiB |", "someone"),
        ("HF_TOKEN=hf_abcdef", "hf_abcdef"),
        ("export API_KEY=abcdef", "abcdef"),
    ],
)
def test_removed(text: str, secret: str) -> None:
    assert secret not in clean_text(f"before\n{text}\nafter\n", ("nvidia-smi", "-q"))


@pytest.mark.parametrize(
    "text",
    [
        "    VBIOS Version                      : 98.02.67.00.0A",
        "GPU 00000000:06:00.0",
        "Driver Version                         : 595.58.03",
        "    Product Name                       : NVIDIA H200",
        "BOOT_IMAGE=/vmlinuz-6.17.0-20-generic ro",
        "\tACSCtl:\tSrcValid+ TransBlk- ReqRedir- CmpltRedir-",
        "|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |",
    ],
)
def test_kept(text: str) -> None:
    assert clean_text(text, ()) == text


def test_kernel_parameters_keep_their_names() -> None:
    line = "BOOT_IMAGE=/vmlinuz-6.8 root=UUID=0aa-1 ip=192.0.2.1::: luks.key=/x iommu=pt init_token=z -- --secret=1\n"
    assert clean_text(line, ("cat", "/proc/cmdline")) == (
        "BOOT_IMAGE=/vmlinuz-6.8 root=(removed) ip=(removed) luks.key=(removed) iommu=pt init_token=(removed)\n"
    )


def test_an_environment_is_cut_to_the_short_list() -> None:
    done = clean(Completed(("env",), 0, b"HOME=/home/me\nSECRET=1\nNCCL_PROTO=LL\n", b"at 192.0.2.1"))
    assert done.text == "PATH=(not kept)\nNCCL_PROTO=LL\n" and done.stderr == b"at (removed)"
