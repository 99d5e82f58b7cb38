//! Keeps the focus when what had it goes: a row is removed, a button does its last work, a view gives
//! way to another one. Without a place of its own it would be the document's, and the next key would
//! begin at the top of the page.

const FOCUSABLE =
  'a[href], button:not(:disabled), input:not(:disabled), select:not(:disabled), textarea:not(:disabled), [tabindex="0"]';

/** Where the focus was: the element, what it was in, which row, and how far from that row's end. */
export interface Place {
  element: HTMLElement;
  within: Element[];
  label: string | null;
  row: string | undefined;
  rowAt: number;
  fromEnd: number;
}

let last: Place | undefined;

function placeOf(element: HTMLElement): Place {
  const within: Element[] = [];
  for (let each = element.parentElement; each && each !== document.body; each = each.parentElement) within.push(each);
  const row = element.closest<HTMLElement>("tr, li");
  return {
    element,
    within,
    label: element.dataset.focus ?? element.getAttribute("aria-label"),
    row: row?.dataset.row,
    rowAt: row?.parentElement ? [...row.parentElement.children].indexOf(row) : -1,
    fromEnd: row ? allIn(row).reverse().indexOf(element) : -1,
  };
}

/** Where the focus is now, to be given back later. */
export function here(): Place | undefined {
  const element = document.activeElement;
  return element instanceof HTMLElement && element !== document.body ? placeOf(element) : last;
}

function can(element: Element | null | undefined): element is HTMLElement {
  return element instanceof HTMLElement && element.isConnected && element.matches(FOCUSABLE + ", [tabindex]") && element.checkVisibility();
}

function allIn(element: Element): HTMLElement[] {
  return [...element.querySelectorAll<HTMLElement>(FOCUSABLE)].filter((one) => one.checkVisibility());
}

function firstIn(element: Element): HTMLElement | undefined {
  return allIn(element)[0];
}

/** What gets the focus in place of what had it. */
function heir({ element, within, label, row, rowAt, fromEnd }: Place): HTMLElement | undefined {
  const dialog = document.querySelector("dialog[open]");
  if (dialog && !dialog.contains(element)) return firstIn(dialog.querySelector("form, footer") ?? dialog) ?? firstIn(dialog);
  if (can(element)) return element;
  // The same one, drawn anew.
  if (label) {
    const twin = row === undefined ? document : (document.querySelector(`[data-row="${CSS.escape(row)}"]`) ?? undefined);
    const again = twin?.querySelector(`[data-focus="${CSS.escape(label)}"], [aria-label="${CSS.escape(label)}"]`);
    if (can(again)) return again;
  }
  const list = within.find((one) => one.isConnected && /^(TBODY|UL)$/.test(one.tagName));
  const next = rowAt >= 0 && list ? (list.children[rowAt] ?? list.lastElementChild) : undefined;
  // What does the same with the next row.
  const inNext = next && (allIn(next).reverse()[fromEnd] ?? firstIn(next));
  if (inNext) return inNext;
  for (const one of within) {
    if (!one.isConnected || !one.checkVisibility()) continue;
    if (one.tagName === "MAIN" || one.querySelector("main")) break;
    // In a form the field before the button that cannot be pressed now.
    const found = one.tagName === "FORM" ? allIn(one).at(-1) : firstIn(one);
    if (found) return found;
  }
  const main = document.querySelector<HTMLElement>("main");
  return can(main) ? main : (main && firstIn(main)) ?? undefined;
}

/** Gives the focus to where it was, or to what is there now. */
export function giveBack(place: Place | undefined): void {
  if (!place) return;
  const target = heir(place);
  target?.focus({ preventScroll: target.tagName === "MAIN" });
}

/** Watches over the focus from now on. */
export function guardFocus(): void {
  addEventListener("focusin", (event) => {
    if (event.target instanceof HTMLElement) last = placeOf(event.target);
  });
  // Whoever clicks beside everything wants the focus nowhere.
  addEventListener("pointerup", () =>
    setTimeout(() => {
      if (document.activeElement === document.body && last?.element.isConnected && can(last.element)) last = undefined;
    }),
  );
  const look = () => {
    const now = document.activeElement;
    if (last && (now === document.body || now?.matches(":disabled"))) giveBack(last);
  };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true, attributeFilter: ["disabled"] });
}
