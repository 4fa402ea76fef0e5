"""Reading a launch script without running it.

Follows assignments (variables, arrays, `+=`, `${NAME:-default}`, arithmetic), conditions (`if`, `case`, `&&`, `||`) and
functions from top to bottom and finds the command that starts training. What only a shell could know (command substitution,
positional parameters, conditions on unknown values) stays in the words as it is written, and is reported. Start reading at
`script.read_script`.

`lexer` splits text into words, `grammar` finds their structure, `expand` gives them values, `arithmetic` and `conditions`
evaluate, `flow` decides which commands run.
"""
