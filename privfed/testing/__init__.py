"""What third parties need to test their own plugins, and what privfed's own tests stand on.

Kits, each a list of checks that must hold for every newcomer:

- ``check_mechanism``: costs, shapes, noise from the source alone, the published law, an audit by
  drawing.
- ``check_accountant``: exact sums, sharp ceilings, guarantees held against exact composition.
- ``check_learner``: scikit-learn's manners, honest policies, a model that releases alone explain.
- ``conformance``: runs a kit, check by check, the skipped ones with a reason.

Assertions and audits of one's own:

- ``leaks``: asserts that no number of the raw table stands in a transcript.
- ``audit``: audits a mechanism at its own claim, from its outputs.
- ``rule_audit``: audits what a cohort's gate lets out about one individual.

Small things to test with:

- ``hospitals``: simulated patients of three hospitals, their schemas, a federation of them.
- ``queries``: three small queries of three styles, which show how one is written.
- ``gates``: asks a gate by bytes, reads its ledger's events, and a query that tells when it is read.
- ``faulty``: mechanisms with planted faults, which an audit must convict.
- ``ledger_trials``: hard trials of a ledger: killed processes, rewritten rows, crowds.
- ``simulated_asking``: a rule search's answers drawn by their law, for curves over many runs.
"""
