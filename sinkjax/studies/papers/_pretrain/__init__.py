"""Studies of pretraining: what their config files hold, the trainings of their rows, and the tables made from them."""
