"""`sublight host`: whether a machine is set up for decoding."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sublight.cli.keeping import campaign_option, keep
from sublight.cli.output import output_options
from sublight.errors import UsageError

if TYPE_CHECKING:
    from sublight.tuning.record import HostReport


@click.command("host", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", "destination", metavar="USER@BOX", help="Another machine, through the system's ssh.")
@click.option("--folder", metavar="DIR", help="A folder of saved command output, recognised by content.")
@click.option("--snapshot", metavar="FILE", help="A saved record that holds a machine's answers, judged again.")
@campaign_option
@output_options
def command(destination: str | None, folder: str | None, snapshot: str | None, **options: Any) -> None:
    """Every knob of this machine that can cost a decode step time: found, recommended, why, and what it can cost.

    Nothing is changed, on this machine or another; the commands that are run only read. What is wrong with a machine
    is an answer: the exit code is 0.

    \b
    sublight host
    sublight host --host me@gpubox --save gpubox.json
    sublight host --folder ./logs --html host.html
    """
    keep(_report(destination, folder, snapshot), options)


def _report(destination: str | None, folder: str | None, snapshot: str | None) -> "HostReport":
    given = [flag for flag, value in (("--host", destination), ("--folder", folder), ("--snapshot", snapshot)) if value]
    if len(given) > 1:
        raise UsageError(" and ".join(given), "each of them names a machine", "one of them")
    from sublight.tuning import report

    if folder:
        return report.folder_report(Path(folder))
    if snapshot:
        return report.snapshot_report(Path(snapshot))
    if destination:
        from sublight.hosts.ssh import SshHost

        with SshHost(destination) as host:
            return report.host_report(host, "ssh")
    from sublight.hosts.local import LocalHost

    return report.host_report(LocalHost(), "local")
