"""Exchange between server and owners: messages, answers, the transcript, and the learners' interface."""
