"""Builds and prices everything that a study names, without reading records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from privfed.errors import Faults, PolicyError, StudyError, did_you_mean
from privfed.learners.base import FederatedLearner, Planned
from privfed.learners.cohort import CohortLearner
from privfed.privacy.loss import foreign
from privfed.privacy.policy import Policy, TrustedShuffler
from privfed.privacy.policy_objects import accountant_of, kinds_of, mechanism_of
from privfed.questions import plugins
from privfed.questions.exact import shown
from privfed.study import LearnerChoice, PolicyChoice, Study
from privfed.study.persistent_ledgers import PersistentLedgers
from privfed.study.price import Balance, Price, allows_more, price
from privfed.study.private_evaluation import whole_plan, with_evaluation
from privfed.study.rescaled import rescaled
from privfed.study.schema_of_study import has_table, public_schema
from privfed.study.utility import utility, utility_text
from privfed.tables.partition import named
from privfed.tables.schema import Schema
from privfed.tables.toml_file import naming, read_toml
from privfed.tables.toml_table import in_words_of_toml, remedy

if TYPE_CHECKING:
    from privfed.attacks.finding import Finding

#: The attack of the participating owner with the most records on all others.
BY_OWNERS = {"name": "pool", "unknown": [""], "viewpoint": "largest"}


def dry_run(
    study: Study, schema: Schema, *, attacks: bool = True, deployed: bool = False
) -> list[Price]:
    """Build and price everything that a study names, before any query: each policy's maximum cost.

    ``attacks`` builds them, too, which loads most statistics. ``deployed``: on the owners' machines,
    see :func:`policy`.

    Raises:
        InputError: all unknown learners, parameters, policies, queries, parts, mechanisms, attacks.
    """
    faults, prices = Faults(), []
    with faults.collected():
        for attack in attacks_of(study) if attacks else ():
            with faults.collected():
                attack.check(schema)
    with faults.collected():
        learner(study)
    for choice in study.policies:
        with faults.collected():
            with naming(f"policy {choice.name!r}") if choice.learner else nullcontext():
                model = learner(study, choice)
            model.check(schema)
            with naming(f"policy {choice.name!r}"):
                if deployed:
                    adopted = policy(choice, model, schema, study.folder, deployed=True)
                else:
                    adopted = adopt(study, choice, model, schema)
                adopted = choice.masked_among(adopted, known_owners(study))
                _build(adopted)
                plan = whole_plan(model, schema, adopted)
                cost = price(plan, schema, adopted)
                _check_statements(plan, schema, cost)
                unnamed = choice.masked is not None and adopted.masked is None
                theirs = foreign(type(model)) and allows_more(adopted, plan)
                planner = type(model).__name__ * theirs
                prices.append(replace(cost, unnamed=unnamed, planner=planner))
    faults.tell(StudyError)
    return prices


def prices(study: Study) -> list[Price]:
    """Bound one client's cost under each policy, simulated and on the owners' machines; reads no records.

    The former if the table is here; the latter if the study names its owners, and the policy differs.
    """
    simulated, local = has_table(study), []
    if simulated or not study.clients.names:
        local = dry_run(study, public_schema(study), attacks=False)
    asks = any(choice.base == "private" and choice.evaluation is None for choice in study.policies)
    if study.clients.names and (asks or not simulated):
        schema, adopted = public_schema(study, deployed=True), [price.policy for price in local]
        remote = dry_run(study, schema, attacks=False, deployed=True)
        local += [replace(price, deployed=True) for price in remote if price.policy not in adopted]
    return local


def utility_of(study: Study, price: Price) -> str:
    """Format the errors of counts and means of the study's table under a policy's budget."""
    schema = public_schema(study, deployed=price.deployed)
    errors = utility(price.policy, schema)
    return utility_text(errors, price.policy, schema, len(known_owners(study)))


def known_owners(study: Study) -> list[str]:
    """Return the owners' names, as far as they are known without reading records."""
    clients = study.clients
    if clients.partition in ("column", "cohort"):
        return list(clients.names or ())
    return list(named(clients.count, clients.names))


def balances(study: Study, prices: Sequence[Price]) -> dict[str, list[Balance]]:
    """Return each owner's balance, by policy; owners are those known without records."""
    ledgers = PersistentLedgers.of(study)
    names = ["each client"] if ledgers is None else list(ledgers.files()) or ["each client"]
    names = known_owners(study) or names
    return {
        price.name: (
            [Balance(name, accountant_of(price.policy).nothing) for name in names]
            if ledgers is None or price.deployed
            else ledgers.balances(study, price.policy, names)
        )
        for price in prices
    }


def read_study(path: Path) -> Study:
    """Read a study's file (StudyError: all its faults, including plugins that are not installed)."""
    where, faults = f"study file {path}", Faults()
    data = read_toml(path, where, StudyError)
    with faults.collected(), naming(where):
        study = Study.from_dict(data, where, path.resolve().parent)
    plugins.check_all(_plugin_names(data), where, faults)
    faults.tell(StudyError)
    return study


def _plugin_names(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the plugins that a study's file names, with their group."""
    attacks, policies = data.get("attacks", ()), data.get("policy", ())
    for entry in attacks if isinstance(attacks, list) else ():
        name = entry.get("name") if isinstance(entry, Mapping) else entry
        if isinstance(name, str) and name != "*":
            yield "attacks", name
    holders = [data, *(policies if isinstance(policies, list) else ())]
    for holder in holders:
        inner = holder
        while isinstance(inner, Mapping) and isinstance(inner.get("learner"), Mapping):
            inner = inner["learner"]
            if isinstance(inner.get("name"), str):
                yield "learners", inner["name"]


def _build(adopted: Policy) -> None:
    faults = Faults()
    with faults.collected():
        kinds_of(adopted, ())
    for guard in (guard for guards in adopted.guards.values() for guard in guards):
        with faults.collected():
            mechanism_of(guard)
    faults.tell(PolicyError)


def _check_statements(plan: Sequence[Planned], schema: Schema, cost: Price) -> None:
    """Check what queries and accountants of other packages state, before anything is charged."""
    adopted = cost.policy
    kinds = {type(planned.query) for planned in plan} | {type(accountant_of(adopted))}
    if not any(map(foreign, kinds)):
        return
    from privfed.audits.compositions import audit_composition  # loads attacks
    from privfed.audits.sensitivities import audit_sensitivities

    faults = [
        f"accountant {finding.detail['accountant']!r}: {finding.detail['untrue'][0]}; correct it, with "
        "privfed.testing.check_accountant"
        for finding in audit_composition(adopted, cost.losses)
        if finding.severity == "breach"
    ]
    findings = audit_sensitivities(plan, schema, adopted)
    faults += [_disproved(finding) for finding in findings if finding.severity == "breach"]
    if faults:
        raise StudyError(*faults)


def _disproved(finding: Finding) -> str:
    """What synthetic records disproved of a query's statements, and how to correct it."""
    failed = finding.detail["errors"]
    what = f"neighbouring synthetic data sets move {', '.join(finding.detail['parts'])} further than declared"
    if failed:
        what = f"it fails on synthetic records of the schema ({failed[0]})"
    return (
        f"query {finding.releases[0]!r}: {what}, so no guarantee would hold; correct its "
        f"{'evaluate' if failed else 'parts'}(), with privfed.testing.check_query"
    )


def learner(study: Study, policy: PolicyChoice | None = None) -> FederatedLearner:
    """Build a study's learner, or a policy's (StudyError: parameters or data that it does not accept)."""
    choice = study.learner if policy is None else study.learner_under(policy.name)
    model = _learner(choice, study.seed)
    cohort = study.clients.partition == "cohort"
    if cohort and not isinstance(model, CohortLearner):
        raise StudyError(
            f"learner {choice.name!r} does not learn from a cohort's rules; write "
            'name = "RuleSearch" under [learner], or another source'
        )
    if isinstance(model, CohortLearner) and not cohort:
        raise StudyError(
            f"learner {choice.name!r} learns from a cohort's rules; write "
            'source = "rules/" under [data] and partition = "cohort" under [clients]'
        )
    return model


def _learner(choice: LearnerChoice, seed: int) -> FederatedLearner:
    build = plugins.load("learners", choice.name)
    params = _convert(choice.params, build.__init__, f"learner {choice.name!r}")
    preset = params.pop("preset", None)
    has_preset = getattr(build, "paper_settings", None) is not None
    if preset is not None and (preset != "paper" or not has_preset):
        known = '"paper"' if has_preset else "none"
        raise StudyError(f"learner {choice.name!r} has no preset {preset!r}; it has {known}")
    if choice.learner is not None:
        params["learner"] = _learner(choice.learner, seed)
    try:
        model: FederatedLearner = build.paper(**params) if preset else build(**params)
    except TypeError:
        where = f"learner {choice.name!r}"
        raise StudyError(*_unknown_params(where, params, build().get_params())) from None
    if "random_state" in model.get_params() and "random_state" not in params:
        model.set_params(random_state=seed)
    return model


def _unknown_params(where: str, params: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return a fault for each unknown parameter, with the closest known one."""
    accepted = f"; it takes {', '.join(sorted(known)) or 'none'}"
    return [
        f"{where} has no parameter {name!r}{did_you_mean(name, known) or accepted}"
        for name in params
        if name not in known
    ] or [f"{where} cannot be built of these params{accepted}"]


def _convert(params: Mapping[str, Any], build: Callable[..., Any], where: str) -> dict[str, Any]:
    """Convert parameters to a function's types; TOML has no null, and "none" stands for it."""
    typed = dict(params)
    try:
        hints = get_type_hints(build)
    except NameError:  # types that a plugin imports under TYPE_CHECKING
        return typed
    for key in (key for key in typed if key in hints):
        if typed[key] == "none" and type(None) in get_args(hints[key]):
            typed[key] = None
        try:
            typed[key] = msgspec.convert(typed[key], hints[key])
        except msgspec.ValidationError as error:
            problem = in_words_of_toml(error).replace(" | null", ' or "none"') + remedy(
                error, hints[key]
            )
            if get_origin(hints[key]) is Literal:
                problem = f"must be one of {', '.join(map(str, get_args(hints[key])))}"
            raise StudyError(f"{where}, params: {key} {problem}") from None
        except TypeError:  # a custom type, which the learner checks itself
            continue
    return typed


def adopt(study: Study, choice: PolicyChoice, model: FederatedLearner, schema: Schema) -> Policy:
    """Return the policy that the owners adopt; with persistent ledgers, under the budget in force."""
    ledgers = PersistentLedgers.of(study)
    proposed = policy(choice, model, schema, study.folder, deployed=False)
    return proposed if ledgers is None else ledgers.hold(study, choice, proposed)


def policy(
    choice: PolicyChoice, model: FederatedLearner, schema: Schema, folder: Path, *, deployed: bool
) -> Policy:
    """Build a study's policy for its learner (StudyError: parameters that it does not accept).

    ``deployed``: on the owners' machines, a share of the budget evaluates the model unless the study
    sets ``evaluation``.
    """
    if choice.base.endswith(".toml"):
        adopted = _read_policy(folder / choice.base)
        if choice.epsilon is not None:
            adopted = rescaled(adopted, choice.exact_epsilon, model, schema)
        return _with_unit(adopted, choice)
    propose: Callable[..., Policy] = model.published
    params = dict(choice.params)
    if choice.base == "strict":
        propose = partial(strict, model)
    elif choice.base == "private":
        params = _convert(params, model.private, f"policy {choice.name!r}")
        propose = partial(model.private, delta=choice.exact_delta, schema=schema)
    private = choice.base == "private"
    try:
        signature(propose).bind(*([choice.exact_epsilon] if private else []), **params)
    except TypeError:
        known = [name for name in signature(propose).parameters if name not in _SET_BY_STUDY]
        raise StudyError(
            f"policy {choice.name!r}: {type(model).__name__} does not take the params "
            f"{', '.join(choice.params)} for {choice.base!r}; it takes {', '.join(known) or 'none'}"
        ) from None
    propose = partial(_propose, partial(propose, **params), choice, model)
    if not private:
        return _with_unit(propose(), choice)
    fraction = (
        None if deployed and choice.evaluation is None else Fraction(str(choice.evaluation or 0))
    )
    proposed = with_evaluation(propose, choice.exact_epsilon, fraction, model, schema)
    if proposed.budget is not None and proposed.budget.epsilon > choice.exact_epsilon:
        raise StudyError(
            f"policy {choice.name!r}: {type(model).__name__} proposes a budget of epsilon "
            f"{shown(proposed.budget.epsilon)}, not {shown(choice.exact_epsilon)}; its private(epsilon, ...) has to keep it"
        )
    return _with_unit(proposed, choice)


def _propose(
    propose: Callable[..., Policy], choice: PolicyChoice, model: FederatedLearner, *arguments: Any
) -> Policy:
    """Return what a learner proposes (StudyError: no policy)."""
    result = propose(*arguments)
    if not isinstance(result, Policy):
        raise StudyError(
            f"policy {choice.name!r}: {type(model).__name__} proposes a {type(result).__name__}, no Policy; "
            "write return Policy(...) in its private and published"
        )
    return result


def _read_policy(path: Path) -> Policy:
    """Read a policy's file; if it has faults, check the queries that it names, too."""
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
    raise AssertionError  # faults.tell raises


def _with_unit(proposed: Policy, choice: PolicyChoice) -> Policy:
    """Return a policy with the study's name, unit, cap and shuffler."""
    unit, cap = choice.unit or proposed.unit, choice.cap or proposed.cap
    if choice.cap is not None and unit in ("record", "rule"):
        raise StudyError(
            f"policy {choice.name!r}: cap is the most records of one individual or client; write "
            'unit = "individual" with it, or leave it out'
        )
    trusted = proposed.shuffled
    if choice.shuffled is not None:
        trusted = TrustedShuffler.from_dict(choice.shuffled, f"policy {choice.name!r}")
    return replace(proposed, name=choice.name, unit=unit, cap=cap, shuffled=trusted)


#: Arguments of a learner's private policy that a study sets by separate keys.
_SET_BY_STUDY = ("epsilon", "delta", "schema")


def strict(model: FederatedLearner) -> Policy:
    """Return the learner's published policy with strict suppression; PolicyError: nothing is suppressed."""
    if "strict" in signature(model.published).parameters:
        policy: Policy = model.published(strict=True)  # type: ignore[call-arg]
        return policy
    published = model.published()
    guards = {
        kind: tuple(
            replace(guard, options={**guard.options, "strict": True})
            if guard.called == "nullify"
            else guard
            for guard in originals
        )
        for kind, originals in published.guards.items()
    }
    if guards == dict(published.guards):
        raise PolicyError(
            "this learner's published policy suppresses nothing, so there is no strict form of it; "
            'leave the policy with base = "strict" out'
        )
    return replace(published, guards=guards)


def attacks_of(study: Study) -> list[Any]:
    """Build a study's attacks; ``"*"`` is all installed ones with default parameters, and :data:`BY_OWNERS`."""
    faults, attacks = Faults(), []
    for selected in study.attacks:
        installed = [*sorted(plugins.available("attacks")), BY_OWNERS]
        names = installed if selected == "*" else [selected]
        for entry in names:
            with faults.collected():
                attack = _attack(entry if isinstance(entry, Mapping) else {"name": entry})
                attack.time_limit = study.attack_seconds or attack.time_limit
                attacks.append(attack)
    faults.tell(StudyError)
    return attacks


def check_viewpoints(study: Study, owners: Iterable[str]) -> None:
    """Check the attacks' viewpoints (StudyError: no such owner)."""
    names = ["largest", *owners]
    for attack in attacks_of(study):
        if attack.viewpoint and attack.viewpoint not in names:
            raise StudyError(
                f"attack {attack.name!r}: no owner {attack.viewpoint!r} for its viewpoint; write one of "
                f"{', '.join(names)}{did_you_mean(attack.viewpoint, names)}"
            )


def _attack(entry: Mapping[str, Any]) -> Any:
    params = dict(entry)
    name = params.pop("name", None)
    if not isinstance(name, str):
        raise StudyError('attacks: a table needs the attack\'s name; write { name = "pool", ... }')
    build, viewpoint = plugins.load("attacks", name), params.pop("viewpoint", "")
    if not isinstance(viewpoint, str):
        raise StudyError(f'attack {name!r}: viewpoint is an owner\'s name; write "largest"')
    known = set(signature(build).parameters)
    if not set(params) <= known:
        raise StudyError(*_unknown_params(f"attack {name!r}", params, known | {"viewpoint"}))
    attack = build(**_convert(params, build.__init__, f"attack {name!r}"))
    attack.viewpoint = viewpoint
    return attack
