"""Read a scikit-learn tree or forest from standard input and write its arrays to standard output.

Run as a separate process, which imports nothing of privfed: ``python -I confined_reader.py pickle``. Before it decodes
the model, the process gives up opening files and connections, starting processes and unbounded memory. Only the classes
listed here are built, so that no other call in a pickle is made.
"""

import copyreg
import io
import json
import pickle
import sys
from contextlib import suppress
from typing import Any

import joblib.numpy_pickle
import numpy as np
from sklearn import ensemble, tree
from sklearn.tree import _tree as compiled

#: Supported models: trees, and forests that average their trees' predictions.
MODELS: dict[str, Any] = {
    model.__name__: model
    for model in (
        *(tree.DecisionTreeClassifier, tree.DecisionTreeRegressor),
        *(tree.ExtraTreeClassifier, tree.ExtraTreeRegressor),
        *(ensemble.RandomForestClassifier, ensemble.RandomForestRegressor),
        *(ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor),
    )
}
BUILT: dict[tuple[str, str], Any] = {
    **{(model.__module__, model.__name__): model for model in MODELS.values()},
    ("sklearn.tree._tree", "Tree"): compiled.Tree,
    ("joblib.numpy_pickle", "NumpyArrayWrapper"): joblib.numpy_pickle.NumpyArrayWrapper,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numpy.core.multiarray", "scalar"): np.float64(0).__reduce__()[0],
    ("copyreg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("builtins", "object"): object,
}
#: Limits of reading a model: bytes of memory, seconds of CPU time
MEMORY, SECONDS = 4 << 30, 60


class FileRefused(Exception):
    """The file holds no tree or forest; the text is shown to the user."""


class Unpickler(pickle.Unpickler):
    """Builds the listed classes only."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a listed class, by its module's name in NumPy 1 or 2 (FileRefused: another class)."""
        known = module.replace("numpy._core.", "numpy.core."), name
        if known in BUILT:
            return BUILT[known]
        raise FileRefused(
            f"it holds {module}.{name}, and only scikit-learn's trees and forests are read: save the tree or forest itself, "
            "such as a pipeline's last step or a search's best_estimator_"
        )


def confine() -> None:
    """Irrevocably give up files, connections, processes and unbounded memory."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    for kind, limit in (
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_AS, MEMORY),
    ):
        with suppress(ValueError, OSError):  # a system without this limit
            resource.setrlimit(kind, (limit, limit))


def read(stored: bytes, form: str) -> Any:
    """Build the model from a pickle, as joblib or pickle writes it, or from skops."""
    if form == "skops":
        import skops.io

        trusted = ["sklearn.tree._tree.Tree"]  # its links are checked by FittedTrees
        return skops.io.loads(stored, trusted=trusted)
    joblib.numpy_pickle.NumpyUnpickler.find_class = Unpickler.find_class
    pickle.load = lambda file, **_: Unpickler(file).load()  # of an array's objects, inside joblib
    return joblib.load(io.BytesIO(stored))


def model_arrays(model: Any) -> dict[str, np.ndarray]:
    """Return the model's arrays, and under ``about`` its description as JSON (FileRefused: unsupported model)."""
    kind = type(model).__name__
    if MODELS.get(kind) is not type(model):
        raise FileRefused(f"it holds a {kind}, and only {', '.join(MODELS)} are read")
    if not hasattr(model, "n_outputs_"):
        raise FileRefused("its model was never fitted")
    if model.n_outputs_ != 1:
        raise FileRefused("its model predicts several outcomes, and models of one are read")
    trees = [tree.tree_ for tree in getattr(model, "estimators_", [model])]
    sizes = [tree.node_count for tree in trees]
    roots = np.cumsum([0, *sizes[:-1]])
    names = ("feature", "threshold", "children_left", "children_right", "n_node_samples")
    arrays = {name: np.concatenate([getattr(tree, name) for tree in trees]) for name in names}
    parameters = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if value is None or isinstance(value, bool | int | float | str)
    }
    classes = getattr(model, "classes_", np.zeros(0))
    about = {
        "kind": kind,
        "parameters": parameters,
        "features": [str(name) for name in getattr(model, "feature_names_in_", [])],
        "width": int(model.n_features_in_),
        "classes": [str(label) for label in classes],
    }
    return {
        **arrays,
        "roots": roots.astype(np.int64),
        "value": np.concatenate([tree.value[:, 0] for tree in trees]),
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
    }


def main(form: str) -> None:
    """Read standard input to its end, confine the process, build the model, and write its arrays."""
    stored = sys.stdin.buffer.read()
    # loads the codec of zip files' names: nothing can be imported after confining
    "".encode("cp437")
    if form == "skops":
        import skops.io  # noqa: F401
    confine()
    try:
        arrays = model_arrays(read(stored, form))
    except FileRefused as error:
        arrays = {"refused": np.frombuffer(str(error).encode(), np.uint8)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    sys.stdout.buffer.write(buffer.getvalue())


if __name__ == "__main__":
    main(sys.argv[1])
