"""What passes between the sides: messages, answers, the transcript, and the interface learners ask through."""
