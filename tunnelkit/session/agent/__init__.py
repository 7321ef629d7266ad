"""The agents of a session: installed, reached, talked to."""
