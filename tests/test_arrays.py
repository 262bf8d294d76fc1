"""Arrays and tables: they arrive as they were, and nothing is ever pickled."""

from __future__ import annotations

import base64
import io
from typing import Any

import msgspec
import pytest

from qbull.contrib import arrays
from qbull.core.codec import Signature
from qbull.core.values import DEFAULT_HOOKS, make_hooks
from qbull.errors import ArgumentsError, PayloadError

HOOKS = make_hooks(arrays.enc_hook, arrays.dec_hook, DEFAULT_HOOKS)


def there_and_back(value: Any, kind: Any) -> Any:
    """The value as a task gets it that is annotated so, after a result of the same type."""

    def task(value: Any) -> Any: ...

    task.__annotations__ = {"value": kind, "return": kind}
    signature = Signature("task", task, HOOKS)
    payload, _ = signature.encode((value,), {})
    [arrived], _ = signature.decode(payload)
    return signature.decode_result(signature.encode_result(arrived))


@pytest.mark.parametrize(
    "dtype", ["float64", "int8", "bool", "complex128", "datetime64[ns]", "U5", "S3", ">i4"]
)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 2), (0, 4)])
def test_arrays_of_numpy_keep_dtype_shape_and_values(dtype: str, shape: tuple[int, ...]) -> None:
    import numpy as np

    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype("i8").astype(dtype)

    arrived = there_and_back(array, np.ndarray)

    assert (arrived.dtype, arrived.shape) == (array.dtype, array.shape)
    assert np.array_equal(arrived, array) and arrived.flags.writeable


def test_orders_of_memory_and_annotations_with_parameters() -> None:
    import numpy as np
    from numpy.typing import NDArray

    array = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    records = np.array([(1, "a")], dtype=[("n", "i4"), ("t", "U2")])

    assert np.array_equal(there_and_back(array, NDArray[np.float64]), array)
    assert np.array_equal(there_and_back(array[::2, 1:], np.ndarray), array[::2, 1:])
    assert np.array_equal(there_and_back(records, np.ndarray), records)
    assert np.isnan(there_and_back(np.array([np.nan]), np.ndarray)).all()


def test_an_array_of_objects_is_refused_on_both_sides() -> None:
    import numpy as np

    def task(value: np.ndarray) -> None: ...  # type: ignore[valid-type]

    task.__annotations__ = {"value": np.ndarray}
    signature = Signature("task", task, HOOKS)
    with pytest.raises(PayloadError, match="has Python objects in it, which would have to be pickled"):
        signature.encode((np.array([object()]),), {})

    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    huge = io.BytesIO()
    np.lib.format.write_array_header_1_0(huge, {"shape": (10**12,), "fortran_order": False, "descr": "<f8"})
    for content, why in (
        (pickled.getvalue(), "qbull never unpickles"),
        (huge.getvalue(), "does not have 0 bytes"),
        (b"PK\x03\x04", "magic"),
        (b"", "magic|EOF|expected"),
    ):
        sent = msgspec.json.encode({"value": {"npy": base64.b64encode(content).decode()}})
        with pytest.raises(ArgumentsError, match=why):
            signature.decode(sent)
    for wrong in ({"npy": "é"}, {"npy": 1}, {}, [], "x", {"npy": "", "more": 1}):
        with pytest.raises(ArgumentsError):
            signature.decode(msgspec.json.encode({"value": wrong}))


def test_tables_of_pandas_keep_types_and_index() -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "n": [1, 2],
            "price": [1.5, None],
            "name": ["a", None],
            "at": pd.to_datetime(["2030-01-31", "2030-02-01"], utc=True),
            "kind": pd.Categorical(["x", "y"]),
        },
        index=pd.Index(["r1", "r2"], name="row"),
    )

    pd.testing.assert_frame_equal(there_and_back(frame, pd.DataFrame), frame)
    for series in (frame["price"], pd.Series([1, 2, 3])):
        arrived = there_and_back(series, pd.Series)
        pd.testing.assert_series_equal(arrived, series, check_names=series.name is not None)
    with pytest.raises(PayloadError):
        there_and_back(pd.DataFrame({"x": [object()]}), pd.DataFrame)


def test_tables_of_pyarrow_and_polars() -> None:
    import pyarrow as pa

    table = pa.table({"n": [1, None], "tags": [["a"], []]})
    assert there_and_back(table, pa.Table).equals(table)

    import polars as pl

    frame = pl.DataFrame({"n": [1, None], "tags": [["a"], []]})
    assert there_and_back(frame, pl.DataFrame).equals(frame)


@pytest.mark.parametrize("value", [object(), 1j])
def test_other_types_are_left_to_others(value: object) -> None:
    with pytest.raises(NotImplementedError):
        arrays.enc_hook(value)
    with pytest.raises(NotImplementedError):
        arrays.dec_hook(type(value), 1)
