"""From a composed configuration to a trained, evaluated and recorded run."""
