"""Studies: one experiment as a file, which is priced, run, attacked and reported.

``choices`` has the tables of the file, ``study`` the file; ``simulation`` and ``cohort_study`` run it,
``assembly`` runs whole jobs for the command line, ``output`` writes their files.
"""

from privfed.study.choices import ClientsChoice, DataChoice, LearnerChoice, PolicyChoice
from privfed.study.study import BUILT_IN, Study

__all__ = ["BUILT_IN", "ClientsChoice", "DataChoice", "LearnerChoice", "PolicyChoice", "Study"]
