"""From a question to a ranked list of recipes with reasons. Start reading at `answer.answer_question`.

`question` understands text, `models` finds the model, `candidates` ranks recipes, `sizing` fits them to GPUs, `advice` says what
applies, `answer` puts it together, and `render` writes it in English or Japanese. Nothing here knows a terminal.
"""
