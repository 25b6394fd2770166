// How a log is shown: long lines wrapped, equal lines folded, the times of lines. The address of the page says what was
// chosen there, so a link and a reload show the same; elsewhere what the person chose last.

export function chosen(name, usual) {
  return new URLSearchParams(location.search).get(name) ?? localStorage.getItem(`log.${name}`) ?? usual;
}

export function choose(name, value) {
  localStorage.setItem(`log.${name}`, value);
  const url = new URL(location.href);
  url.searchParams.set(name, value);
  history.replaceState(history.state, "", url);
}
