"""The looks of the report page: on a wide screen, on a phone, printed, light and dark."""

CSS = """
:root { color-scheme: light dark;
  --text: #1a1a1a; --quiet: #5c5c5c; --line: #d9d9d9; --back: #ffffff; --soft: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e8; --quiet: #a8a8a8; --line: #3c4048; --back: #16181c; --soft: #1f2228; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 1rem; color: var(--text); background: var(--back);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: .5rem 0 0; }
h2 { font-size: 1.25rem; margin: 2rem 0 .5rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.25rem 0 .4rem; }
.sub, .note, figcaption { color: var(--quiet); font-size: .875rem; margin: .25rem 0; }
.notes { background: #fff4d6; color: #4a3800; border-left: 4px solid #e69f00; margin: 1rem 0;
  padding: .5rem 1rem .5rem 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--back); }
thead th { color: var(--quiet); font-weight: 600; border-bottom-width: 2px; }
tbody th { font-weight: 500; }
td.none { color: var(--quiet); font-style: italic; }
td small { color: var(--quiet); }
.dot { margin-right: .2em; }
.figures { display: grid; align-items: start; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
.tables { display: flex; flex-wrap: wrap; align-items: start; gap: 0 2.5rem; }
.table { max-width: 100%; }
figure { margin: 0; }
figure img { display: block; width: 100%; max-width: 640px; height: auto; background: #ffffff;
  border: 1px solid var(--line); border-radius: 6px; padding: .4rem; }
details { margin: .5rem 0; }
summary { cursor: pointer; padding: .4rem 0; font-weight: 500; }
pre { background: var(--soft); padding: .75rem; overflow-x: auto; font-size: .8rem; line-height: 1.4;
  border-radius: 6px; }
@media (max-width: 600px) {
  body { padding: .6rem; }
  tbody th, thead th:first-child { min-width: 6.5em; max-width: 42vw; white-space: normal; }
  th, td { padding: .3rem .45rem; }
}
@media print {
  :root { --text: #000000; --quiet: #444444; --line: #bbbbbb; --back: #ffffff; --soft: #ffffff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .figures { grid-template-columns: 1fr 1fr; }
  .tables { display: block; }
  .scroll { overflow: visible; }
  table { font-size: 8pt; }
  th, td { padding: .15rem .35rem; white-space: normal; }
  th:first-child { position: static; }
  figure, .table, tr { break-inside: avoid; }
  h2, h3, summary { break-after: avoid; }
  details::details-content { content-visibility: visible; display: block; }
  pre { white-space: pre-wrap; font-size: 7pt; columns: 2; }
}
"""
