"""Define the command `oocdata check`."""

from __future__ import annotations

from typing import Annotated

import typer

from oocdata.cli.command import command, print_result
from oocdata.cli.options import Json, Overwrite, Quiet, flag, option
from oocdata.errors import ArgumentError
from oocdata.tools.opening import Opening


@command
def check(
    array: Opening,
    write_manifest: Annotated[
        bool, flag("--write-manifest", "Write checksums to FILE.manifest.")
    ] = False,
    manifest: Annotated[
        bool, flag("--manifest", "Compare with the checksums in FILE.manifest.")
    ] = False,
    manifest_file: Annotated[
        str | None, option("FILE", "The manifest, if not FILE.manifest; compares by default.")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read everything once, and report damaged rows.

    Finds data that is truncated, missing, damaged, unreadable, trailing,
    unwritten, nan or inf; with a manifest also rows of which any bit has changed
    since it was written. Unchecked data is reported, but is no finding. Without
    a dataset's name, all datasets are read. Several files are checked one by
    one; many healthy ones are only counted.

    Exit code 3: found damage, or a number that is NaN or infinite.

    \b
    Examples:
      oocdata check ds.npy
      oocdata check part*.npy
      oocdata check sim.h5::/flow/u
      oocdata check run.zarr --write-manifest
      oocdata check run.zarr --manifest
      oocdata check run.zarr --manifest-file sums/run.manifest
    """  # noqa: D301
    from oocdata.tools.check import check as run

    if manifest_file is None and (manifest or write_manifest) and "://" in str(array.target):
        raise ArgumentError("`manifest_file` must be given for a URL; a manifest is on a disk.")
    if overwrite and not write_manifest:
        raise ArgumentError("`overwrite` needs `write_manifest`.")
    path = manifest_file or True
    health = run(
        array,
        manifest=path if manifest or (manifest_file and not write_manifest) else None,
        write_manifest=path if write_manifest else None,
        overwrite=overwrite,
        progress=not quiet,
    )
    print_result(health, json)
    if not (health.datasets or health.findings):
        typer.echo("oocdata: there is no dataset in the file.", err=True)
        raise typer.Exit(1)
    if write_manifest and not health.written:
        typer.echo("oocdata: no manifest was written, because the data are damaged.", err=True)
    if not health.healthy() or (write_manifest and not health.written):
        raise typer.Exit(3)
