// Choose the run of the replica whose log is shown: the newest run, from restart to restart, or a certain one.

export class Runs {
  constructor(view) {
    this.view = view;
    view.runs.addEventListener("change", () => view.show(view.replica, view.runs.value));
  }

  // Fetch the list of runs again. It is hidden if there is only one run.
  async look() {
    const { view } = this;
    let job;
    try {
      const answer = await fetch(view.api);
      if (!answer.ok) return;
      job = await answer.json();
    } catch {
      return; // The socket reports a lost connection.
    }
    const runs = job.replicas.find(({ name }) => name === view.replica)?.runs ?? [];
    const options = [new Option("Newest run, followed", "")];
    for (const run of runs.toReversed()) {
      options.push(new Option(`Attempt ${run.attempt}, start ${run.number + 1}, on ${run.host}`, run.id));
    }
    view.runs.replaceChildren(...options);
    view.runs.value = view.namedRun;
    view.runsField.hidden = runs.length < 2;
  }
}
