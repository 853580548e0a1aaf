"""Studies of Ran-Milo 2026: on the trigger task softmax attention needs a sink, ReLU attention does not."""
