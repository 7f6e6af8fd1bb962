"""IsSameObject: whether two patches of an image show the same object (arXiv 2510.24709).

study          section, steps, tables, figures, claims: declarations
measure        the public function `bindscope.same_object`, and how it reads arrays
config         keys of the section and of probes, and where each probe is fitted
products       what a run makes, and from what; `cost`: what that takes

patch_samples  which patches take part; `data`: their pairs
scorers        families of probes: forms and their optimum, classes, identities, baselines
fit            a probe fitted to layers and measured, for jobs and for `measure`
metrics        calibration; scores on test pairs and on kinds of pairs
estimates      rows of quantities with intervals; gains of one probe over another
geometry       what tokens are like; `fitted_scorer`: a fit read back, score maps
effects        edits of what a probe reads: subspace, passes of the model, attention, job

scores         scores of pairs; `quantities`: names, geometry, edits; each declared once
tables         columns of the tables
views, claims, findings, figures, result_view    what is read off the tables and shown
known          planted tokens, of the example `clutter`
"""
