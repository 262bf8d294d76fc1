"""Arrays and tables as arguments and results: numpy arrays as npy, tables as Arrow. Nothing is pickled.

    from qbull.contrib import arrays

    app = qbull.App(enc_hook=arrays.enc_hook, dec_hook=arrays.dec_hook)

`numpy.ndarray` needs numpy; `polars.DataFrame` needs polars; `pandas.DataFrame`, `pandas.Series` and
`pyarrow.Table` need pyarrow. qbull imports a library only after the program has done so.
"""

from __future__ import annotations

import base64
import io
import math
import sys
import typing
from typing import Any

MAX_ARRAY_HEADER_BYTES = 10_000

_NPY, _ARROW = "npy", "arrow"


def enc_hook(value: Any) -> Any:
    """The array or table as plain data. Raises NotImplementedError for any other value.

    Args:
        value: a value that has no JSON form of its own.
    """
    match _name_of(type(value)):
        case "numpy.ndarray":
            return {_NPY: _text(_npy_of(value))}
        case "pandas.DataFrame":
            return {_ARROW: _text(_arrow_of(_pyarrow().Table.from_pandas(value)))}
        case "pandas.Series":
            frame = value.to_frame(name="value" if value.name is None else value.name)
            return {_ARROW: _text(_arrow_of(_pyarrow().Table.from_pandas(frame)))}
        case "pyarrow.Table":
            return {_ARROW: _text(_arrow_of(value))}
        case "polars.DataFrame":
            buffer = io.BytesIO()
            value.write_ipc_stream(buffer)
            return {_ARROW: _text(buffer.getvalue())}
        case _:
            raise NotImplementedError


def dec_hook(kind: Any, value: Any) -> Any:
    """The array or table of an annotated type. Raises NotImplementedError for any other type.

    Args:
        kind: the annotated type.
        value: the plain data that `enc_hook` has made.
    """
    # NDArray[np.float64] is a numpy.ndarray with parameters.
    match _name_of(typing.get_origin(kind) or kind):
        case "numpy.ndarray":
            return _array_of(_content(value, _NPY))
        case "pandas.DataFrame":
            return _table_of(_content(value, _ARROW)).to_pandas()
        case "pandas.Series":
            return _table_of(_content(value, _ARROW)).to_pandas().iloc[:, 0]
        case "pyarrow.Table":
            return _table_of(_content(value, _ARROW))
        case "polars.DataFrame":
            return sys.modules["polars"].read_ipc_stream(io.BytesIO(_content(value, _ARROW)))
        case _:
            raise NotImplementedError


def _name_of(kind: Any) -> str:
    """The library and the name of a type, whatever module of the library it is in."""
    if not isinstance(kind, type):
        return ""
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    return name if kind.__name__ in ("ndarray", "DataFrame", "Series", "Table") else ""


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _content(value: Any, form: str) -> bytes:
    if not isinstance(value, dict) or set(value) != {form} or not isinstance(value[form], str):
        raise ValueError(f'expected an object with "{form}", as qbull.contrib.arrays writes it')
    try:
        return base64.b64decode(value[form], validate=True)
    except ValueError as error:
        raise ValueError(f'"{form}" is not base64: {error}') from None


def _npy_of(array: Any) -> bytes:
    if array.dtype.hasobject:
        raise TypeError(
            f"an array of {array.dtype} has Python objects in it, which would have to be pickled; "
            "use a dtype of numbers, times or texts, or pass array.tolist()"
        )
    buffer = io.BytesIO()
    sys.modules["numpy"].lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _array_of(content: bytes) -> Any:
    """The array in an npy file. Its header cannot ask for more memory than the content has."""
    numpy = sys.modules["numpy"]
    file, form = io.BytesIO(content), numpy.lib.format
    version = form.read_magic(file)
    read_header = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}.get(version)
    if read_header is None:
        raise ValueError(f"npy {version}: only the versions 1.0 and 2.0 are read")
    shape, is_fortran, dtype = read_header(file, max_header_size=MAX_ARRAY_HEADER_BYTES)
    if dtype.hasobject:
        raise ValueError("the array has Python objects in it, and qbull never unpickles")
    data = content[file.tell() :]
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"the array of shape {shape} does not have {len(data):,} bytes")
    flat = numpy.frombuffer(data, dtype=dtype) if dtype.itemsize else numpy.empty(math.prod(shape), dtype)
    # A copy, because an array over bytes could not be changed.
    return flat.reshape(shape, order="F" if is_fortran else "C").copy(order="K")


def _arrow_of(table: Any) -> bytes:
    pyarrow = _pyarrow()
    buffer = io.BytesIO()
    with pyarrow.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def _table_of(content: bytes) -> Any:
    with _pyarrow().ipc.open_stream(content) as reader:
        return reader.read_all()


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise TypeError("tables travel as Arrow, which needs pyarrow; pip install pyarrow") from None
    return pyarrow
