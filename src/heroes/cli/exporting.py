"""`heroes export`: a trained model as a file for elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from heroes.cli import options
from heroes.cli.app import app
from heroes.cli.console import print_pairs, status
from heroes.report import Metric

_KINDS = "safetensors, torchscript, onnx, executorch or litert; by default what the file's ending says."
Width = Annotated[int | None, typer.Option(help="Of the model; by default the widest within the limits.")]
Kind = Annotated[str | None, typer.Option("--format", help=_KINDS)]
Output = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
Bytes = Annotated[int | None, typer.Option("--max-bytes", min=1, help="The file may be no larger.")]
Flops = Annotated[float | None, typer.Option("--max-flops", min=1, help="One example may cost no more.")]


@app.command("export")
def export_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    output: Output,
    width: Width = None,
    kind: Kind = None,
    max_bytes: Bytes = None,
    max_flops: Flops = None,
    own: options.Own = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the model of a run as a file, and check it against PyTorch.

    A model of your own comes from the file that the run began with; name it again if that changed or moved.
    """
    with status("exporting"):
        from heroes.runs.loading import load

        made = load(folder, own=own).export(
            output, width, format=kind, max_bytes=max_bytes, max_flops=max_flops
        )
    facts = {"file": str(made.path), "format": made.format, "bytes": made.bytes, **made.about}
    if as_json:
        print(json.dumps({**facts, "difference": made.difference, "tried": made.tried}))
        return
    about, given = made.about, made.about["inputs"]
    score = Metric(about["metric"]).text(about["score"]) if "score" in about else "not measured"
    print_pairs(
        [
            ("file", f"{made.path} ({made.format}, {made.bytes:,} bytes)"),
            ("width", f"{made.width} of {about['complete_width']}"),
            (about.get("metric", "accuracy"), f"{score}, after round {about['round']}"),
            (
                "an example",
                f"{given['dtype']} {given['shape']}, {about['flops']:,} FLOPs",
            ),
            ("largest difference from PyTorch", f"{made.difference:.2g}, on {made.tried}"),
        ]
    )
