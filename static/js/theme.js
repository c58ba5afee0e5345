// Django's admin draws its own <html>: bring it the theme that was chosen on the pages.
"use strict";
{
  const chosen = /(?:^|; )theme=(light|dark)/.exec(document.cookie);
  if (chosen) document.documentElement.dataset.theme = chosen[1];
}
