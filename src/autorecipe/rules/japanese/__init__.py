"""Japanese of the rules: what each says, in the sentences of a Japanese engineer. Data by topic, loaded for one finding.

A module here is named like the topic of its ids (`par` for `PAR003`) and holds `TITLES`, one sentence per rule, and where rules
compute their message `MESSAGES` and `PARTS`, pairs of the English template and the Japanese one. Start reading at `findings.say_finding`.
"""
