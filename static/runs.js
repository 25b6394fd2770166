// Which run of the replica is shown: the newest, from restart to restart, or one that is chosen.

export class Runs {
  constructor(view) {
    this.view = view;
    view.runs.addEventListener("change", () => view.show(view.replica, view.runs.value));
  }

  // Fetch the list anew. With one run there is nothing to choose.
  async look() {
    const { view } = this;
    let job;
    try {
      const answer = await fetch(view.api);
      if (!answer.ok) return;
      job = await answer.json();
    } catch {
      return; // The socket tells that the connection is gone.
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
