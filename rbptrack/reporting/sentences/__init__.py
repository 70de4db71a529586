"""The sentences of findings: a module per analyzer, each with `SENTENCES`: question -> what makes its sentences.

Such a function gets all findings of its question in one report and yields sentences, each with its full stop. The first
says the whole in at most 60 words, however many families there are: it is the headline of an analyzer whose first
question this is. Verdict first, then the number, then the doubt; `rbptrack.base.words` and `rbptrack.analysis.phrases`
help.
"""
