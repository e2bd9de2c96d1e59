"""Whatever a study names, built: learners, policies and attacks, and the price of them all.

Nothing here reads a record, so that every slip is told before anything is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from privfed.errors import Faults, PolicyError, StudyError, did_you_mean
from privfed.learners.base import FederatedLearner
from privfed.learners.cohort import CohortLearner
from privfed.privacy.policy import Guard, Policy
from privfed.privacy.policy_objects import kinds_of, mechanism_of
from privfed.questions import plugins
from privfed.study import LearnerChoice, PolicyChoice, Study
from privfed.study.lasting import Lasting
from privfed.study.price import Price, price
from privfed.study.study import unquoted
from privfed.tables.schema import Schema
from privfed.tables.toml_file import naming, read_toml


def rehearse(study: Study, schema: Schema) -> list[Price]:
    """Build whatever a study names and price it, so that a slip is told before anything is asked.

    Returns:
        what one client would pay under each policy.

    Raises:
        InputError: an unknown learner, parameter, policy, query, part, mechanism or attack.
    """
    faults, prices = Faults(), []
    with faults.collected():
        attacks_of(study)
    with faults.collected():
        learner(study)
    for choice in study.policies:
        with faults.collected():
            model = learner(study, choice)
            model.check(schema)
            with naming(f"policy {choice.name!r}"):
                adopted = adopt(study, choice, model, schema)
                _build(adopted)
                prices.append(price(model.plan(schema, adopted), schema, adopted))
    faults.tell(StudyError)
    return prices


def read_study(path: Path) -> Study:
    """Read a study's file, and hold the learners and attacks that it names to what is installed.

    Raises:
        StudyError: it tells every fault of the file at once.
    """
    where, faults = f"study file {path}", Faults()
    plain = read_toml(path, where, StudyError)
    with faults.collected(), naming(where):
        study = Study.from_dict(plain, where, path.resolve().parent)
    for group, name in _named(plain):
        with faults.collected(), naming(where):
            plugins.check(group, name)
    faults.tell(StudyError)
    return study


def _named(plain: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a study's file names that must be installed, by the plugins' group."""
    attacks, policies = plain.get("attacks", ()), plain.get("policy", ())
    for name in attacks if isinstance(attacks, list) and attacks != ["*"] else ():
        if isinstance(name, str):
            yield "attacks", name
    holders = [plain, *(policies if isinstance(policies, list) else ())]
    for holder in holders:
        inner = holder
        while isinstance(inner, Mapping) and isinstance(inner.get("learner"), Mapping):
            inner = inner["learner"]
            if isinstance(inner.get("name"), str):
                yield "learners", inner["name"]


def _build(adopted: Policy) -> None:
    """Build every query and mechanism that a policy names."""
    faults = Faults()
    with faults.collected():
        kinds_of(adopted, ())
    for guard in (guard for guards in adopted.guards.values() for guard in guards):
        with faults.collected():
            mechanism_of(guard)
    faults.tell(PolicyError)


def learner(study: Study, policy: PolicyChoice | None = None) -> FederatedLearner:
    """Build a study's learner, or what learns under one of its policies.

    Raises:
        StudyError: an unknown parameter (the known ones are listed), or a learner that does not
            learn from what the study is about.
    """
    choice = study.learner if policy is None else study.learner_under(policy.name)
    made = _learner(choice, study.seed)
    cohort = study.clients.partition == "cohort"
    if cohort and not isinstance(made, CohortLearner):
        raise StudyError(
            f"learner {choice.name!r} does not learn from a cohort's rules; write "
            'name = "RuleSearch" under [learner], or another source'
        )
    if isinstance(made, CohortLearner) and not cohort:
        raise StudyError(
            f"learner {choice.name!r} learns from a cohort's rules; write "
            'source = "rules/" under [data] and partition = "cohort" under [clients]'
        )
    return made


def _learner(choice: LearnerChoice, seed: int) -> FederatedLearner:
    build = plugins.load("learners", choice.name)
    params = _typed(choice.params, build.__init__, f"learner {choice.name!r}")
    if choice.learner is not None:
        params["learner"] = _learner(choice.learner, seed)
    try:
        made: FederatedLearner = build(**params)
    except TypeError:
        raise StudyError(*_strangers(choice.name, params, build().get_params())) from None
    if "random_state" in made.get_params() and "random_state" not in params:
        made.set_params(random_state=seed)
    return made


def _strangers(name: str, params: Iterable[str], known: Iterable[str]) -> list[str]:
    """A fault for each parameter that a learner does not have, with the one that was meant."""
    listed = f"; it takes {', '.join(sorted(known)) or 'none'}"
    return [
        f"learner {name!r} has no parameter {one!r}{did_you_mean(one, known) or listed}"
        for one in params
        if one not in known
    ] or [f"learner {name!r} cannot be built of these params{listed}"]


def _typed(params: Mapping[str, Any], build: Callable[..., Any], where: str) -> dict[str, Any]:
    """Parameters as the types that a function names, where TOML can say them."""
    typed = dict(params)
    try:
        named = get_type_hints(build)
    except NameError:  # types that a plugin imports for its checker alone
        return typed
    for key in (key for key in typed if key in named):
        try:
            typed[key] = msgspec.convert(typed[key], named[key])
        except msgspec.ValidationError as error:
            listed = get_origin(named[key]) is Literal
            why = (
                f"must be one of {', '.join(map(str, get_args(named[key])))}"
                if listed
                else in_words_of_toml(error)
            )
            raise StudyError(f"{where}, params: {key} {why}") from None
        except TypeError:  # a type of the learner's own, which it checks itself
            continue
    return typed


def in_words_of_toml(error: msgspec.ValidationError) -> str:
    """What a type should have been, as whoever writes TOML calls it."""
    told = str(error).replace("`", "").lower()
    return told.replace("object", "table").replace("array", "list") + unquoted(told)


def adopt(study: Study, choice: PolicyChoice, model: FederatedLearner, schema: Schema) -> Policy:
    """The policy that the owners adopt for a study: under their own budget, where ledgers last."""
    proposed = policy(choice, model, schema, study.folder)
    lasting = Lasting.of(study)
    return proposed if lasting is None else lasting.hold(study, choice, proposed)


def policy(choice: PolicyChoice, model: FederatedLearner, schema: Schema, folder: Path) -> Policy:
    """Build the policy that a study names, for its learner.

    Raises:
        StudyError: the learner's policy takes no such parameter.
    """
    if choice.base.endswith(".toml"):
        return _protecting(_of_file(folder / choice.base), choice)
    propose: Callable[..., Policy] = model.published
    params = dict(choice.params)
    if choice.base == "strict":
        propose = partial(strict, model)
    elif choice.base == "private":
        params = _typed(params, model.private, f"policy {choice.name!r}")
        propose = partial(model.private, choice.exact_epsilon, choice.exact_delta, schema=schema)
    try:
        signature(propose).bind(**params)
    except TypeError:
        known = [name for name in signature(propose).parameters if name not in _OURS]
        raise StudyError(
            f"policy {choice.name!r}: {type(model).__name__} does not take the params "
            f"{', '.join(choice.params)} for {choice.base!r}; it takes {', '.join(known) or 'none'}"
        ) from None
    return _protecting(propose(**params), choice)


def _of_file(path: Path) -> Policy:
    """Read a policy's file; where it is at fault, the queries that it names are held to as well."""
    faults = Faults()
    try:
        return Policy.from_toml(path)
    except PolicyError as error:
        faults.add(error)
    with faults.collected():
        guards = read_toml(path, f"policy file {path}", PolicyError).get("guard", ())
        for guard in guards if isinstance(guards, list) else ():
            kind = guard.get("query") if isinstance(guard, Mapping) else None
            with faults.collected(), naming(f"policy file {path}"):
                plugins.check("queries", kind if isinstance(kind, str) else "")
    faults.tell(PolicyError)
    raise AssertionError  # the first fault is told


def _protecting(proposed: Policy, choice: PolicyChoice) -> Policy:
    """A policy under the study's own name for it, and over the unit that the study names."""
    unit, cap = choice.unit or proposed.unit, choice.cap or proposed.cap
    if choice.cap is not None and unit in ("record", "rule"):
        raise StudyError(
            f"policy {choice.name!r}: cap is the most records of one individual or client; write "
            'unit = "individual" with it, or leave it out'
        )
    return replace(proposed, name=choice.name, unit=unit, cap=cap)


#: Arguments of a learner's private policy that a study sets by keys of their own.
_OURS = ("epsilon", "delta", "schema")


def strict(model: FederatedLearner) -> Policy:
    """What the learner publishes with strict suppression: its own form, or every guard made strict.

    Raises:
        PolicyError: no guard of the published policy suppresses anything.
    """
    if "strict" in signature(model.published).parameters:
        own: Policy = model.published(strict=True)  # type: ignore[call-arg]
        return own
    published = model.published()
    guards = {
        kind: tuple(_strict_guard(guard) for guard in several)
        for kind, several in published.guards.items()
    }
    if guards == dict(published.guards):
        raise PolicyError(
            "this learner's published policy suppresses nothing, so there is no strict form of it; "
            'leave the policy with base = "strict" out'
        )
    return replace(published, guards=guards)


def _strict_guard(guard: Guard) -> Guard:
    if guard.called != "nullify":
        return guard
    return replace(guard, options={**guard.options, "strict": True})


def attacks_of(study: Study) -> list[Any]:
    """Build the attacks that a study names, or all that are installed."""
    names = study.attacks if study.attacks != ("*",) else sorted(plugins.available("attacks"))
    faults, built = Faults(), []
    for name in names:
        with faults.collected():
            attack = plugins.load("attacks", name)()
            attack.seconds = study.attack_seconds or attack.seconds
            built.append(attack)
    faults.tell(StudyError)
    return built
