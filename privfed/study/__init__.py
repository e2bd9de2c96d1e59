"""Studies: one experiment as a file, carried out, priced, attacked and written down.

``choices`` are the file's tables and ``study`` the whole; ``simulation`` and ``cohort_study`` carry it
out, ``assembly`` runs whole jobs for the command line, ``output`` is what they leave on disk.
"""

from privfed.study.choices import ClientsChoice, DataChoice, LearnerChoice, PolicyChoice
from privfed.study.study import BUILT_IN, Study

__all__ = ["BUILT_IN", "ClientsChoice", "DataChoice", "LearnerChoice", "PolicyChoice", "Study"]
