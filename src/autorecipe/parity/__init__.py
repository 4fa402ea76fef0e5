"""Two runs to a verdict: do they train the same?"""
