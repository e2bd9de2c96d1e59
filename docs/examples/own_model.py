"""
A gate around scikit-learn's own models
=======================================

Sixty clinics train a logistic regression and a small network by federated averaging, on Flower and, where it is
installed, on NVIDIA FLARE. Each clinic's update leaves through a gate of its own, which clips it, adds noise and charges
it. By a fair coin each clinic takes part, or sends an update of zero; who knows all her records, and every model, tries to
tell which. The attack, its audit against the claimed epsilon and checks of the guard stand on one page, beside
the same training without a gate.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

from privfed.attacks.finding import Finding
from privfed.audits.one_run import audit_one_run
from privfed.engines.flower import guard
from privfed.engines.updates import UpdateGate
from privfed.guards import checks
from privfed.guards.adapters import ADAPTERS
from privfed.guards.claim import GuardClaim
from privfed.guards.trial import GuardTrial
from privfed.guards.verdict import GuardVerdict
from privfed.ledger import Ledger
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy
from privfed.reports.guard import guard_page

ROUNDS, CLIP, EPSILON, DELTA = 4, 1.0, 8.0, 1e-5
RHO = largest_rho(EPSILON, DELTA) / ROUNDS
POLICY = Policy(
    {"model.update": (Guard.of("gaussian", spend=RHO, times=ROUNDS),)},
    unit="client",
    accountant="zcdp",
    budget=Budget.of("8", "1e-5"),
)
Arrays = list[np.ndarray]
#: Trains at a clinic for a round, and gives what leaves of it; nothing if that is refused.
Clinic = Callable[[Arrays, int], Arrays | None]


# %%
# Anybody's models: scikit-learn's, a few passes over a clinic's records from the weights that were sent.


def logistic() -> Any:
    """A logistic regression, set up for eight features."""
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.02, random_state=0)
    return model.partial_fit(np.eye(8), np.arange(8) % 2, classes=[0, 1])


def network() -> Any:
    """One hidden layer of six units."""
    model = MLPClassifier((6,), learning_rate_init=0.1, batch_size=10, random_state=0, solver="sgd")
    return model.partial_fit(np.eye(8), np.arange(8) % 2, classes=[0, 1])


def weights(model: Any) -> Arrays:
    """A model's arrays."""
    deep = hasattr(model, "coefs_")
    return [*model.coefs_, *model.intercepts_] if deep else [model.coef_, model.intercept_]


def put(model: Any, arrays: Arrays) -> None:
    """Write a model's arrays."""
    for own, new in zip(weights(model), arrays, strict=True):
        own[...] = new


def records(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Made-up patients of one clinic."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 8))
    risk = x[:, 0] - x[:, 1] + 0.8 * x[:, 2] * (x[:, 3] > 0) + rng.normal(size=rows)
    return x, (risk > 0).astype(int)


def trained(make: Callable[[], Any], arrays: Arrays, seed: int) -> Arrays:
    """The weights after two passes over a clinic's records."""
    model = make()
    put(model, arrays)
    for _ in range(2):
        model.partial_fit(*records(seed, 100))
    return [each.copy() for each in weights(model)]


def update(make: Callable[[], Any], arrays: Arrays, seed: int) -> Arrays:
    """What training adds."""
    return [new - old for new, old in zip(trained(make, arrays, seed), arrays, strict=True)]


# %%
# On Flower, a clinic is an ordinary app; the gate is its mod. Here the messages are handed over in one process.


def flower_clinic(
    make: Callable[[], Any], seed: int, *, present: bool, gate: UpdateGate | None
) -> Clinic:
    """A clinic's ClientApp."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # set by Flower in a node
    app = ClientApp(mods=[] if gate is None else [guard(gate)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = message.content["arrays"].to_numpy_ndarrays()
        made = trained(make, arrays, seed) if present else arrays
        return Message(RecordDict({"arrays": record(made)}), reply_to=message)

    def ask(arrays: Arrays, number: int) -> Arrays | None:
        told = {"arrays": record(arrays), "config": ConfigRecord({"server-round": number})}
        reply = app(Message(RecordDict(told), 1, "train"), Context(1, 1, {}, RecordDict(), {}))
        if reply.has_error():
            return None
        made = reply.content["arrays"].to_numpy_ndarrays()
        return [new - old for new, old in zip(made, arrays, strict=True)]

    return ask


def record(arrays: Arrays) -> ArrayRecord:
    """Arrays as Flower sends them."""
    return ArrayRecord({str(at): Array(np.asarray(each)) for at, each in enumerate(arrays)})


# %%
# On FLARE, the gate is a filter of the site's results.


def flare_clinic(
    make: Callable[[], Any], seed: int, *, present: bool, gate: UpdateGate | None
) -> Clinic:
    """A site's trainer, and its filter."""
    from privfed.engines.flare_filter import GateFilter

    leaves = None if gate is None else ADAPTERS["flare"](GateFilter(gate))

    def ask(arrays: Arrays, number: int) -> Arrays | None:
        made = update(make, arrays, seed) if present else [np.zeros_like(a) for a in arrays]
        return made if leaves is None else leaves(made)

    return ask


STACKS = {"flower": flower_clinic}
if find_spec("nvflare"):
    STACKS["flare"] = flare_clinic


# %%
# Federated averaging, what the attacker makes of every clinic's releases, and the page.


def averaged(
    make: Callable[[], Any], clinics: list[Clinic], rounds: int = ROUNDS
) -> tuple[Any, list[Arrays], list[list[Arrays | None]]]:
    """The model, the weights that were sent in each round, and what left each clinic."""
    model, sent, left = make(), [], []
    for number in range(1, rounds + 1):
        sent.append([each.copy() for each in weights(model)])
        left.append([clinic(sent[-1], number) for clinic in clinics])
        told = [each for each in left[-1] if each is not None]
        means = [np.mean(parts, axis=0) for parts in zip(*told, strict=True)]
        put(model, [old + mean for old, mean in zip(sent[-1], means, strict=True)])
    return model, sent, left


def flat(arrays: Arrays) -> np.ndarray:
    """All numbers of an update."""
    return np.concatenate([np.ravel(each) for each in arrays])


def scores(
    make: Callable[[], Any], sent: list[Arrays], left: list[list[Arrays | None]]
) -> np.ndarray:
    """How far each clinic's releases lie towards her update, which the attacker can work out; by clinic."""
    found = np.zeros(len(left[0]))
    for arrays, told in zip(sent, left, strict=True):
        for clinic, each in enumerate(told):
            own = flat(update(make, arrays, clinic))
            own *= min(1.0, CLIP / np.linalg.norm(own))
            found[clinic] += 0.0 if each is None else own @ (flat(each) - own / 2)
    return found


def findings(name: str, present: np.ndarray, found: np.ndarray) -> list[Finding]:
    """The attack on membership, and the audit of what it proves."""
    area, members = float(roc_auc_score(present, found)), int(present.sum())
    chance = np.sqrt((len(present) + 1) / (12 * members * (len(present) - members)))
    attack = Finding(
        f"membership, {name}",
        "Knowing all its records and every model, can one tell whether a clinic took part?",
        "ROC AUC",
        area,
        of=1.0,
        baseline=0.5,
        severity="some" if area > 0.5 + 2 * chance else "none",
    )
    audit = audit_one_run(
        present,
        found,
        EPSILON,
        delta=DELTA,
        alpha=checks.SHARE,
        noise="independent gaussian",
        centre=0.0,
        name=name,
    )
    return [attack, audit]


def page(stack: str, clinics: int = 60, *, gated: bool = True) -> GuardVerdict:
    """Train both models on a stack, attack and audit them; the guard is checked as well."""
    present = np.random.default_rng(1).random(clinics) < 0.5
    seen: list[Finding] = []
    for make in (logistic, network):
        gates = [
            UpdateGate(f"clinic {n}", POLICY, Ledger(None, f"clinic {n}"), clip=CLIP)
            for n in range(clinics)
        ]
        asked = [
            STACKS[stack](make, n, present=bool(present[n]), gate=gates[n] if gated else None)
            for n in range(clinics)
        ]
        model, sent, left = averaged(make, asked)
        x, y = records(10_000, 2000)
        print(
            f"{stack:7} {make.__name__:9} gate {gated}: AUC {roc_auc_score(y, model.predict_proba(x)[:, 1]):.3f}"
        )
        seen += findings(make.__name__, present, scores(make, sent, left))
    claim = GuardClaim(EPSILON, DELTA, rounds=ROUNDS, clip=CLIP, noise="gaussian")
    if gated:
        seen += _checked(stack, claim)
    return GuardVerdict(
        f"{stack}: privfed's gate" if gated else f"{stack}: no gate", claim, seen, clinics
    )


def _checked(stack: str, claim: GuardClaim) -> list[Finding]:
    """A few of the checks of `privfed check-guard`, of a gate that is made anew for each run."""
    from privfed.engines import flower

    def opened() -> Any:
        gate = UpdateGate("a clinic", POLICY, Ledger(None, "a clinic"), clip=CLIP)
        if stack == "flower":
            return ADAPTERS[stack](flower.guard(gate))
        from privfed.engines.flare_filter import GateFilter

        return ADAPTERS[stack](GateFilter(gate))

    trial = GuardTrial(opened, claim)
    return [
        check(trial) for check in (checks.check_shapes, checks.check_untouched, checks.check_fresh)
    ]


def main(folder: Path = Path("own-model")) -> None:
    """Write a page for each stack, and one for the training without a gate."""
    folder.mkdir(exist_ok=True)
    for name, verdict in {
        "no gate": page("flower", gated=False),
        **{stack: page(stack) for stack in STACKS},
    }.items():
        print(verdict.text(), "\n")
        (folder / f"{name}.html").write_text(guard_page(verdict.to_dict()), encoding="utf-8")


if __name__ == "__main__":
    main()
