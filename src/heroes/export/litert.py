"""LiteRT (TensorFlow Lite): for Android and microcontrollers. Whole numbers go in as int32."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from heroes.export.running import quietly

NAME = "heroes"  # of the metadata


class LiteRt:
    ending = ".tflite"
    packages: tuple[str, ...] = ("litert_torch", "ai_edge_litert")
    extra = "litert"
    fixed = True

    def packed(self, module: nn.Module, inputs: Tensor, about: str) -> bytes:
        with quietly(), tempfile.TemporaryDirectory() as folder:
            import litert_torch

            path = Path(folder) / "model.tflite"
            litert_torch.convert(module, (inputs,)).export(str(path))
            return _described(path.read_bytes(), about)

    def outputs(self, path: Path, inputs: Tensor, blank: Callable[[], nn.Module]) -> Tensor:
        with quietly():
            from ai_edge_litert.interpreter import Interpreter

            interpreter = Interpreter(model_path=str(path))
            interpreter.allocate_tensors()
            (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
            interpreter.set_tensor(given["index"], inputs.numpy().astype(given["dtype"]))
            interpreter.invoke()
            return torch.from_numpy(interpreter.get_tensor(made["index"]).copy())

    def about(self, path: Path) -> str:
        from ai_edge_litert import schema_py_generated as schema

        model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
        found = [
            model.buffers[each.buffer].data for each in model.metadata or [] if each.name == NAME.encode()
        ]
        return bytes(found[0]).decode() if found else ""


def _described(content: bytes, about: str) -> bytes:
    """The same model with one more entry in its metadata."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(about.encode())
    entry.name, entry.buffer = NAME, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    builder = flatbuffers.Builder(len(content) + len(about))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
