"""What is asked of a model: interventions, and the experiments made of them."""
