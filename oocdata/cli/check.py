"""`oocdata check`."""

from __future__ import annotations

from typing import Annotated

import typer

from oocdata.cli.failures import errors
from oocdata.cli.options import (
    Axis,
    Debug,
    Dtype,
    External,
    Json,
    Key,
    Offset,
    Shape,
    Target,
    check_key,
    opening_of,
    print_json,
)

__all__ = ["check"]

_WriteManifest = Annotated[
    bool, typer.Option("--write-manifest", help="Keep checksums in PATH.manifest.")
]
_Manifest = Annotated[
    bool, typer.Option("--manifest", help="Compare with the checksums in PATH.manifest.")
]
_ManifestFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="The manifest, if not PATH.manifest.")
]
_Force = Annotated[bool, typer.Option("--force", help="Write over a manifest.")]
_Allow = Annotated[
    str, typer.Option(metavar="KINDS", help="Findings that are fine: nan,unwritten.")
]
_Show = Annotated[int, typer.Option(help="Runs of rows, or files, to name of each.", min=1)]


def check(
    path: Target,
    key: Key = None,
    write_manifest: _WriteManifest = False,
    manifest: _Manifest = False,
    manifest_file: _ManifestFile = None,
    force: _Force = False,
    allow: _Allow = "",
    show: _Show = 10,
    axis: Axis = 0,
    dtype: Dtype = None,
    shape: Shape = None,
    offset: Offset = 0,
    external: External = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Read everything once, and say what is wrong with which rows.

    Finds what is truncated, missing, damaged, unreadable, trailing, unwritten,
    nan or inf; with a manifest also what has changed or was added since it was
    written, to the bit. What is sparse or unchecked is only told. Without KEY,
    all datasets of the file are read.

    \b
    Exit code: 0 nothing found but what --allow names; 3 something found;
    1 an error; 2 called wrongly.

    \b
    Examples:
      oocdata check ds.npy
      oocdata check sim.h5 /flow/u --allow nan,unwritten
      oocdata check run.zarr --write-manifest
      oocdata check run.zarr --manifest
      oocdata check run.zarr --manifest --manifest-file sums/run.manifest
      oocdata check 'part*.npy' --json
    """  # noqa: D301
    opening = opening_of(axis, dtype, shape, offset, "fill", external)
    with errors(debug):
        from oocdata.tools.check import KINDS
        from oocdata.tools.check import check as run

        allowed = [kind.strip() for kind in allow.split(",") if kind.strip()]
        unknown = [kind for kind in allowed if kind not in KINDS]
        if unknown:
            raise typer.BadParameter(
                f"{unknown[0]!r} is none of {', '.join(KINDS)}.", param_hint="--allow"
            )
        if manifest and write_manifest:
            raise typer.BadParameter(
                "--manifest and --write-manifest must not be given together.",
                param_hint="--manifest",
            )
        if manifest_file is not None and not (manifest or write_manifest):
            raise typer.BadParameter(
                "needs --manifest or --write-manifest.", param_hint="--manifest-file"
            )
        if manifest_file is None and (manifest or write_manifest) and "://" in path:
            raise typer.BadParameter("must be given for a URL.", param_hint="--manifest-file")
        if force and not write_manifest:
            raise typer.BadParameter("needs --write-manifest.", param_hint="--force")
        check_key(key)
        where = manifest_file or True
        health = run(
            path,
            key,
            axis=opening.axis,
            dtype=opening.dtype,
            shape=opening.shape,
            offset=opening.offset,
            external=opening.external,
            manifest=where if manifest else None,
            write_manifest=where if write_manifest else None,
            overwrite=force,
            progress=True,
        )
        if json:
            print_json(health.to_json())
        else:
            typer.echo(health.text(show=show))
        if write_manifest and not health.written:
            typer.echo("oocdata: no manifest was written, because the data are damaged.", err=True)
        if not (health.datasets or health.findings):
            typer.echo("oocdata: there is no dataset in the file.", err=True)
            raise typer.Exit(1)
        if not health.healthy(allowed) or (write_manifest and not health.written):
            raise typer.Exit(3)
