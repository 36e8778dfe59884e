(() => {
  'use strict';
  const root = document.documentElement;

  // Light or dark: what the system says, until the button says otherwise.
  const button = document.querySelector('.theme');
  const system = matchMedia('(prefers-color-scheme: dark)');
  const dark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : system.matches);
  const name = () => { button.textContent = dark() ? 'Light' : 'Dark'; };
  try {
    const kept = localStorage.getItem('attnlearn-theme');
    if (kept === 'light' || kept === 'dark') root.dataset.theme = kept;
  } catch { /* a page from a file may have no memory */ }
  button.hidden = false;
  button.addEventListener('click', () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    try { localStorage.setItem('attnlearn-theme', root.dataset.theme); } catch { /* likewise */ }
    name();
  });
  system.addEventListener('change', name);
  name();

  // On paper everything is open.
  let closed = [];
  addEventListener('beforeprint', () => {
    closed = [...document.querySelectorAll('details:not([open])')];
    for (const one of closed) one.open = true;
  });
  addEventListener('afterprint', () => { for (const one of closed) one.open = false; });

  // Values: titles of marks, which browsers show late and phones not at all, become a box of our own.
  const tip = document.getElementById('tip');
  let shown = null;
  const hide = () => {
    if (shown) shown.classList.remove('on');
    shown = null;
    tip.hidden = true;
  };
  const show = (mark) => {
    if (mark === shown) return;
    hide();
    if (!mark) return;
    shown = mark;
    mark.classList.add('on');
    const [first, ...rest] = mark.dataset.value.split('\n');
    const head = document.createElement(rest.length ? 'b' : 'span');
    head.textContent = first;
    tip.replaceChildren(head, rest.join('\n'));
    tip.hidden = false;
    const at = mark.getBoundingClientRect(), box = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left + at.width / 2 - box.width / 2, root.clientWidth - box.width - 8));
    const above = at.top - box.height - 10;
    tip.style.left = `${left}px`;
    tip.style.top = `${above < 8 ? at.bottom + 10 : above}px`;
  };
  const nearest = (marks, x, y) => {
    let best = null, least = 28 ** 2;
    for (const mark of marks) {
      const at = mark.getBoundingClientRect();
      const away = (at.left + at.width / 2 - x) ** 2 + (at.top + at.height / 2 - y) ** 2;
      if (away < least) [best, least] = [mark, away];
    }
    return best;
  };
  for (const svg of document.querySelectorAll('svg.panel')) {
    const marks = [...svg.querySelectorAll('.v')];
    for (const mark of marks) {
      const title = mark.querySelector('title');
      mark.dataset.value = title.textContent;
      title.remove();
    }
    if (!marks.length) continue;
    const point = (e) => show(e.target.closest('.v') ?? nearest(marks, e.clientX, e.clientY));
    svg.addEventListener('pointermove', point);
    svg.addEventListener('pointerdown', point);
    svg.addEventListener('pointerleave', (e) => { if (e.pointerType === 'mouse') hide(); });
    svg.addEventListener('focus', () => { if (svg.matches(':focus-visible')) show(marks[0]); });
    svg.addEventListener('blur', hide);
    svg.addEventListener('keydown', (e) => {
      const now = marks.indexOf(shown), last = marks.length - 1;
      const to = { ArrowRight: Math.min(now + 1, last), ArrowLeft: Math.max(now - 1, 0), Home: 0, End: last }[e.key];
      if (to === undefined) return;
      e.preventDefault();
      show(marks[to]);
    });
  }
  document.addEventListener('pointerdown', (e) => { if (!e.target.closest('svg.panel')) hide(); });
  document.addEventListener('keydown', (e) => { if (e.key === 'Escape') hide(); });
  addEventListener('scroll', hide, { passive: true });
})();
