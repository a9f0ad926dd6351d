"""The pages about everything that is kept: what the experiments came to, from results/ alone."""
