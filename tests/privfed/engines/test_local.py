"""A federation in one process: split by column, answered by bytes, accounted for by client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Budget, Guard, LocalDisclosure, Policy, Schema
from privfed.errors import DataWarning, InputError, Note, PolicyError, SchemaError
from privfed.privacy.accountant import STATED
from privfed.testing.queries import Histogram, LevelSums

QUERY = Histogram(0, (0.0, 0.5, 1.0))
LEVEL = LevelSums((((0, 0),), ((0, 1),)))
OPEN = Policy({LEVEL.kind: (Guard.of("open"),), QUERY.kind: (Guard.of("open"),)}, name="open")
NOISY = Policy({QUERY.kind: (Guard.of("laplace", spend="0.2"),)}, budget=Budget.of("0.5"))


def table(rows: int = 40, seed: int = 4) -> pd.DataFrame:
    """Records of four clinics."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(0, 1, (rows, 3)), columns=["a", "b", "y"])
    return frame.assign(clinic=[f"clinic {i % 4}" for i in range(rows)])


def local(
    frame: pd.DataFrame, schema: Schema, policy: object = OPEN, **more: object
) -> LocalDisclosure:
    """A seeded federation by clinic."""
    options = {"target": "y", "client": "clinic", "schema": schema, "seed": 1} | more
    return LocalDisclosure.from_frame(frame, policy=policy, **options)  # type: ignore[arg-type]


@settings(max_examples=25)
@given(owners=st.lists(st.integers(0, 3), min_size=40, max_size=40), seed=st.integers(0, 99))
def test_any_split_adds_up_alike(schema: Schema, owners: list[int], seed: int) -> None:
    """Sums equal the central ones to the bit, however records are dealt and ordered."""
    frame = table(seed=seed)
    central = local(frame.assign(clinic="all"), schema).ask(LEVEL)
    dealt = frame.assign(clinic=[f"clinic {owner}" for owner in owners])
    shuffled = dealt.sample(frac=1, random_state=seed)
    federated = local(shuffled, schema).ask(LEVEL)
    for part in ("counts", "sums"):
        assert np.array_equal(central.total(part), federated.total(part))


def test_a_policy_may_be_made_for_the_schema(schema: Schema) -> None:
    """Whoever divides a budget by the schema's features gets it; anything but a policy is told."""

    def divided(known: Schema) -> Policy:
        guard = Guard.of("laplace", spend=Budget.of(1).epsilon / len(known.features))
        return Policy({QUERY.kind: (guard,)}, budget=Budget.of(1))

    federation = local(table(), schema, divided)
    federation.ask(QUERY)
    assert (federation.budget()["spent"] == 0.5).all()
    with pytest.raises(PolicyError, match="must make a Policy; write lambda schema"):
        local(table(), schema, lambda known: "published")


def test_seeds_repeat(schema: Schema) -> None:
    """A seed repeats everything; clients draw different noise; no seed does not repeat."""
    policy = Policy({QUERY.kind: (Guard.of("laplace", spend="0.001"),)})
    one, again = (local(table(), schema, policy).ask(QUERY) for _ in range(2))
    assert np.array_equal(one.total("counts"), again.total("counts"))
    assert len({str(units) for units in one.each("counts").values()}) == 4
    assert not one.releases()[0].secure
    secure = local(table(), schema, policy, seed=None).ask(QUERY)
    assert secure.releases()[0].secure
    assert not np.array_equal(one.total("counts"), secure.total("counts"))


def test_budget_table(schema: Schema) -> None:
    """What is spent and what remains, by client; unprotected releases make it infinite."""
    federation = local(table(), schema, NOISY)
    federation.ask(QUERY)
    budget = federation.budget()
    assert list(budget.client) == [f"clinic {i}" for i in range(4)]
    assert set(budget.spent) == {0.2}
    assert set(budget.remaining) == {0.3}
    opened = local(table(), schema)
    opened.ask(QUERY)
    assert set(opened.budget().spent) == {float("inf")}
    assert set(opened.budget().unprotected) == {1}


def test_what_is_spent_without_a_budget_is_told_with_its_delta(schema: Schema) -> None:
    """An epsilon of Gaussian noise holds at a delta alone; no column said at which."""
    guards = {LevelSums.kind: (Guard.of("gaussian", spend="0.1"),)}
    federation = local(table(), schema, Policy(guards, accountant="zcdp"))
    federation.ask(LevelSums(((),)))
    row = federation.budget().iloc[0]
    assert row["epsilon"] is None and row["spent"] > 0 and row["delta"] == float(STATED)


def test_transcript_is_in_order(schema: Schema) -> None:
    """All that left, in order of time, client by client."""
    federation = local(table(), schema)
    federation.ask(QUERY, LEVEL)
    federation.ask(QUERY, clients=["clinic 2"])
    kinds = [(line.client[-1], line.kind) for line in federation.transcript().of(client="clinic 2")]
    assert kinds == [("2", QUERY.kind), ("2", LEVEL.kind), ("2", QUERY.kind)]
    transcript = federation.transcript()
    assert len(transcript) == 9
    assert len({id(e.fields) for e in transcript}) == 2  # a query that reached several is kept once
    federation.verify()


@pytest.mark.parametrize("name", ["a/b", "..", "a:b", "ä", "C"])
def test_ledger_files_stay_in_their_folder(schema: Schema, tmp_path: Path, name: str) -> None:
    """A client's name cannot lead its ledger out of the folder."""
    folder = tmp_path / "ledgers"
    frame = table(4).assign(clinic=name)
    federation = local(frame, schema, ledgers=folder)
    federation.ask(QUERY)
    federation.close()
    assert [path.parent for path in tmp_path.rglob("*.db")] == [folder]


def test_an_inferred_schema_is_an_unprotected_release() -> None:
    """Bounds read off the data are in every ledger, before any question."""
    with pytest.warns(Note, match="no schema was given"):
        federation = local(table(), None)  # type: ignore[arg-type]
    assert set(federation.budget().unprotected) == {1}
    federation.verify()


def test_what_is_refused_is_not_noted_too(recwarn: pytest.WarningsRecorder) -> None:
    """Bounds read off the data, under a budget: one error, and no note before it."""
    with pytest.raises(InputError, match="needs a public schema"):
        local(table(), None, NOISY)  # type: ignore[arg-type]
    assert not [one for one in recwarn if issubclass(one.category, Note)]


@pytest.mark.parametrize("size", [0, 1])
def test_a_client_of_few_records(schema: Schema, size: int) -> None:
    """One record is a client's like any other; a client without any is not in the table."""
    frame = pd.concat([table(8), table(1).assign(clinic="small").head(size)])
    assert local(frame, schema).ask(QUERY).total("counts").sum() == 8 + size


@pytest.mark.parametrize(
    ("frame", "options", "says"),
    [
        (table(), {"client": "hospital"}, "no column 'hospital'.*a, b, y, clinic"),
        (
            table().assign(clinic=pd.Series(["x", None] * 20)),
            {},
            "20 of 40 records without a client; name their owner, or",
        ),
        (table().assign(clinic=["x", "x "] * 20), {}, "two clients with one name"),
        (pd.concat([table(), table()[["clinic"]]], axis=1), {}, "'clinic' stands twice"),
        (pd.concat([table(), table()[["a"]]], axis=1), {}, "'a' stands twice"),
        (table().drop(columns="b"), {}, "no column 'b'"),
        (table(), {"target": "z"}, "the target is 'z'"),
        (table(), {"individual": "person"}, "no column 'person'"),
        (table().assign(a=["7318,25"] * 40), {}, "text stands in 10 cells"),
        (table().assign(y=1.0), {"schema": None}, "'y' is constant"),
        (table(), {"policy": "publishd"}, "no policy called 'publishd'"),
        (table(), {"policy": {"clinic 0": OPEN}}, "'clinic 1' has no policy"),
        (table(), {"schema": None, "policy": NOISY}, "needs a public schema"),
        (table(), {"policy": "none.toml"}, r"policy file none\.toml"),
        (table().head(0), {}, "at least one client"),
        (table().to_dict("records"), {}, "of type list; give a pandas.DataFrame"),
        (table(), {"target": 3}, "target is of type int; give the name of the column"),
        (table(), {"schema": "schema.toml"}, "of type str; give schema=Schema.from_toml"),
    ],
)
def test_bad_input(
    schema: Schema, frame: pd.DataFrame | list[object], options: dict[str, object], says: str
) -> None:
    """One line each that says what and where; no raw value."""
    with pytest.raises((InputError, PolicyError, SchemaError), match=says) as caught:
        local(frame, **({"schema": schema} | options))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert "7318" not in str(caught.value)


def test_nothing_half_written(schema: Schema, tmp_path: Path) -> None:
    """Bad input leaves no ledger behind."""
    with pytest.raises(SchemaError):
        local(table().drop(columns="b"), schema, ledgers=tmp_path / "ledgers")
    assert not list(tmp_path.rglob("*.db"))


def test_bounds_that_do_not_fit_are_told_once_of_all_owners(schema: Schema) -> None:
    """By name where there are few; forty owners are counted, and are one line."""
    for owners, told in ((3, "0, 1, 2: "), (40, "40 of 40 data owners: ")):
        frame = pd.DataFrame(
            {
                "a": np.linspace(2, 3, 80),
                "b": np.linspace(0, 1, 80),
                "y": np.linspace(0, 1, 80),
                "owner": (np.arange(80) % owners).astype(str),
            }
        )
        with pytest.warns(DataWarning) as caught:
            LocalDisclosure.from_frame(
                frame, target="y", client="owner", schema=schema, policy=Policy({})
            )
        clip = f"{told}the schema's bounds clip 80 cells of 80 records: 80 of 'a'"
        constant = f"{told}only one value, once clipped, in column 'a'"
        assert [str(one.message) for one in caught] == [clip, constant]


def test_a_constant_column_is_told_of_every_owner_whoever_else_is_clipped(schema: Schema) -> None:
    """One cell of one owner is clipped; the constant column is that of all three."""
    frame = pd.DataFrame(
        {
            "a": [0.5] * 9,
            "b": [0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.1, 9.0],
            "y": [0.5] * 3 + [0.6] * 6,
            "owner": list("000111222"),
        }
    )
    for clipped in (True, False):
        table = frame.assign(b=frame["b"].clip(upper=None if clipped else 1))
        with pytest.warns(DataWarning) as caught:
            LocalDisclosure.from_frame(
                table, target="y", client="owner", schema=schema, policy=Policy({})
            )
        told = [str(one.message) for one in caught]
        assert told.pop() == "0, 1, 2: only one value, once clipped, in column 'a'"
        if clipped:
            assert told.pop(0) == "2: the schema's bounds clip 1 cell of 3 records: 1 of 'b'"
            assert told.pop(0).startswith("2: 1 of 3 records repeat an earlier one")
        assert not told
