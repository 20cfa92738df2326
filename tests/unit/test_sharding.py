"""Which shard owns a key, and how a shard is written."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_hexshard.errors import InvalidKeyError, ShardError
from scrapy_hexshard.keys import digest
from scrapy_hexshard.sharding import (
    MAX_SHARDS,
    ShardSpec,
    assigned_indices,
    check_count,
    digest_owner,
    legacy_rowid_owner,
    parse_number,
    stable_owner,
)

COUNTS = st.integers(1, MAX_SHARDS)
IDS = st.text("abcxyz0189-", min_size=1)
NOT_NUMBERS = ["", " ", "x", "-1", "+1", "01", "1_0", " 1", "1 ", "1.0", "٣", "１", "9" * 10]  # noqa: RUF001


class TestShardSpec:
    @pytest.mark.parametrize(("index", "count"), [(0, 1), (3, 4), (MAX_SHARDS - 1, MAX_SHARDS)])
    def test_it_takes_an_index_below_its_count(self, index: int, count: int) -> None:
        spec = ShardSpec(index, count)
        assert (spec.index, spec.count) == (index, count)

    @pytest.mark.parametrize("index", [-1, 4, True, False, 1.0, "1", None])
    def test_any_other_index_is_refused(self, index: Any) -> None:
        with pytest.raises(ShardError, match=r"does not exist: with 4 shards .* from 0 to 3"):
            ShardSpec(index, 4)

    @pytest.mark.parametrize("count", [0, -1, MAX_SHARDS + 1, True, 4.0, "4", None])
    def test_any_other_count_is_refused(self, count: Any) -> None:
        with pytest.raises(ShardError, match="whole number from 1 to 65536"):
            ShardSpec(0, count)

    def test_it_is_frozen_and_compares_by_value(self) -> None:
        spec = ShardSpec(index=2, count=4)
        with pytest.raises(FrozenInstanceError):
            spec.index = 3  # type: ignore[misc]
        assert spec == ShardSpec(2, 4)
        assert len({spec, ShardSpec(2, 4), ShardSpec(2, 5)}) == 2
        assert pickle.loads(pickle.dumps(spec)) == spec

    @given(COUNTS.flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
    def test_it_reads_what_it_writes(self, numbers: tuple[int, int]) -> None:
        spec = ShardSpec(*numbers)
        assert ShardSpec.parse(str(spec)) == spec

    def test_spaces_around_the_written_form_are_ignored(self) -> None:
        assert ShardSpec.parse(" 2/4\n") == ShardSpec(2, 4)

    @pytest.mark.parametrize("text", ["", "2", "24", "2-4", "2:4"])
    def test_a_form_without_a_slash_is_refused(self, text: str) -> None:
        with pytest.raises(ShardError, match=r"index/count, such as 2/4"):
            ShardSpec.parse(text)

    @pytest.mark.parametrize("number", NOT_NUMBERS)
    def test_parts_that_are_no_numbers_are_refused(self, number: str) -> None:
        with pytest.raises(ShardError, match="the shard count is a whole number"):
            ShardSpec.parse(f"0/{number}x")
        with pytest.raises(ShardError, match="the shard index is a whole number"):
            ShardSpec.parse(f"x{number}/4")

    @pytest.mark.parametrize("text", ["4/4", "0/0", "0/65537", "1/2/3"])
    def test_a_shard_out_of_range_is_refused(self, text: str) -> None:
        with pytest.raises(ShardError):
            ShardSpec.parse(text)


class TestFromEnv:
    def test_it_reads_both_variables(self) -> None:
        assert ShardSpec.from_env({"CRAWL_SHARD": "2", "CRAWL_SHARDS": "4"}) == ShardSpec(2, 4)

    def test_it_reads_the_environment_of_the_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CRAWL_SHARD", "1")
        monkeypatch.setenv("CRAWL_SHARDS", "3")
        assert ShardSpec.from_env() == ShardSpec(1, 3)

    @pytest.mark.parametrize(
        ("environ", "missing"),
        [
            ({}, "CRAWL_SHARD and CRAWL_SHARDS not set"),
            ({"CRAWL_SHARD": "0"}, "CRAWL_SHARDS not set"),
            ({"CRAWL_SHARDS": "4"}, "CRAWL_SHARD not set"),
            ({"CRAWL_SHARD": "", "CRAWL_SHARDS": "4"}, "CRAWL_SHARD not set"),
        ],
    )
    def test_a_missing_variable_is_named(self, environ: dict[str, str], missing: str) -> None:
        with pytest.raises(ShardError, match=f"^{missing}"):
            ShardSpec.from_env(environ)

    @pytest.mark.parametrize("number", NOT_NUMBERS[1:])
    def test_a_bad_variable_is_named(self, number: str) -> None:
        with pytest.raises(ShardError, match=r"^CRAWL_SHARD is a whole number"):
            ShardSpec.from_env({"CRAWL_SHARD": number, "CRAWL_SHARDS": "4"})
        with pytest.raises(ShardError, match=r"^CRAWL_SHARDS is a whole number"):
            ShardSpec.from_env({"CRAWL_SHARD": "0", "CRAWL_SHARDS": number})


class TestOwner:
    @given(IDS, COUNTS)
    def test_it_is_the_first_eight_bytes_of_the_digest_modulo_the_count(
        self, key: str, count: int
    ) -> None:
        number = int.from_bytes(sha256(key.encode()).digest()[:8], "big")
        assert stable_owner(key, count) == number % count
        assert digest_owner(digest(key), count) == number % count
        assert digest_owner(digest(key)[:16], count) == number % count

    @given(IDS, st.integers(1, 40))
    def test_exactly_one_shard_owns_a_key(self, key: str, count: int) -> None:
        assert sum(ShardSpec(index, count).owns(key) for index in range(count)) == 1

    def test_every_spelling_has_the_same_owner(self) -> None:
        spellings = ["HTTP://H.example:80", "http://h.example/#top", " http://u:p@h.example/\n"]
        assert len({stable_owner(url, 65_536) for url in spellings}) == 1

    def test_a_bad_key_or_count_is_refused(self) -> None:
        with pytest.raises(InvalidKeyError):
            stable_owner("", 4)
        with pytest.raises(InvalidKeyError):
            ShardSpec(0, 4).owns("http://h:99999/")
        with pytest.raises(ShardError):
            stable_owner("sku-1", 0)


class TestLegacyOwner:
    def test_it_is_the_row_number_modulo_the_count(self) -> None:
        assert [legacy_rowid_owner(row, 4) for row in range(6)] == [0, 1, 2, 3, 0, 1]

    @given(st.integers(0, 2**63), st.integers(1, 40))
    def test_exactly_one_shard_owned_a_row(self, rowid: int, count: int) -> None:
        specs = [ShardSpec(index, count) for index in range(count)]
        owners = [spec.index for spec in specs if spec.legacy_owns_rowid(rowid)]
        assert owners == [legacy_rowid_owner(rowid, count)]

    @pytest.mark.parametrize("rowid", [-1, True, 1.0, "1", None])
    def test_what_is_no_row_number_is_refused(self, rowid: Any) -> None:
        with pytest.raises(ShardError, match="row number"):
            legacy_rowid_owner(rowid, 4)

    def test_a_bad_count_is_refused(self) -> None:
        with pytest.raises(ShardError, match="number of shards"):
            legacy_rowid_owner(1, 0)


class TestAssignedIndices:
    @given(st.integers(0, 300), st.integers(1, 40))
    def test_the_shards_part_a_list_evenly_and_completely(self, total: int, count: int) -> None:
        parts = [assigned_indices(total, ShardSpec(index, count)) for index in range(count)]
        assert sorted(position for part in parts for position in part) == list(range(total))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1

    def test_it_costs_nothing_for_a_long_list(self) -> None:
        assert len(assigned_indices(10**12, ShardSpec(1, 4))) == 250_000_000_000

    @pytest.mark.parametrize("total", [-1, True, 1.5, "7", None])
    def test_what_is_no_length_is_refused(self, total: Any) -> None:
        with pytest.raises(ShardError, match="length of a list"):
            assigned_indices(total, ShardSpec(0, 4))


@pytest.mark.parametrize("text", NOT_NUMBERS)
def test_a_number_is_read_strictly(text: str) -> None:
    with pytest.raises(ShardError, match=r"^--shards is a whole number"):
        parse_number(text, "--shards")


def test_a_good_count_is_returned() -> None:
    assert check_count(7) == 7
    assert parse_number("0", "x") == 0
    assert parse_number("999999999", "x") == 999_999_999
