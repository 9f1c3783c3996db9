import copy
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.identity import digest
from operators.kernel import Kernel

fields = st.one_of(st.text(max_size=4), st.binary(max_size=4), st.integers())
tunables = st.dictionaries(st.sampled_from(["A", "B", "AB", "BLOCK"]), st.integers(-5, 5), max_size=3)


@given(st.lists(fields, max_size=4), st.lists(fields, max_size=4))
def test_digests_are_equal_exactly_for_equal_fields(a: list[str | bytes | int], b: list[str | bytes | int]) -> None:
    same = [(type(x), x) for x in a] == [(type(x), x) for x in b]
    assert (digest(*a) == digest(*b)) == same
    assert len(digest(*a)) == 32


def test_digests_see_types_and_borders() -> None:
    different = [("ab",), ("a", "b"), ("", "ab"), ("ab", ""), (b"ab",), ("1",), (1,), (b"1",), (), ("",)]
    assert len({digest(*one) for one in different}) == len(different)
    assert digest("kernel", 1) == digest("kernel", 1)
    with pytest.raises(KeyError):
        digest(1.5)  # type: ignore[arg-type]


@given(st.text(max_size=20), tunables)
def test_a_kernel_is_its_fields(source: str, values: dict[str, int]) -> None:
    kernel = Kernel("softmax", "cpu", source, values)
    again = Kernel("softmax", "cpu", source, dict(reversed(values.items())))
    assert kernel == again and kernel.id == again.id and hash(kernel) == hash(again)
    assert kernel.source_id == kernel.with_values({}).source_id
    others = (
        Kernel("softmax", "cuda", source, values),
        Kernel("matmul", "cpu", source, values),
        Kernel("softmax", "cpu", source + " ", values),
        Kernel("softmax", "cpu", source, {**values, "C": 1}),
    )
    assert len({kernel.id, *(other.id for other in others)}) == 5
    assert len({kernel.source_id, *(other.source_id for other in others)}) == 4
    assert kernel.with_values({"C": 1}).id == Kernel("softmax", "cpu", source, {"C": 1}).id


@given(st.text(max_size=20), tunables)
def test_kernels_travel(source: str, values: dict[str, int]) -> None:
    kernel = Kernel("softmax", "cpu", source, values)
    for twin in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel), copy.copy(kernel)):
        assert twin == kernel and twin.id == kernel.id and {kernel: 1}[twin] == 1


def test_kernels_cannot_be_changed_afterwards() -> None:
    values = {"B": 1, "A": 2}
    kernel = Kernel("softmax", "cpu", "", values)
    before = kernel.id
    values["B"] = 3
    assert kernel.values == {"A": 2, "B": 1} and list(kernel.values) == ["A", "B"]
    assert isinstance(kernel.values, Mapping) and not hasattr(kernel.values, "update")
    with pytest.raises(AttributeError):
        kernel.source = "other"  # type: ignore[misc]
    assert kernel.id == before


def test_even_broken_text_has_an_identity() -> None:
    assert Kernel("softmax", "cpu", "\ud800").id != Kernel("softmax", "cpu", "\ud801").id
