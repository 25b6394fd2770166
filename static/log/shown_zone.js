// The zone in which a log shows times: UTC if its lines have their times in UTC, else that of the page. The times of lines
// that were found are in it too, and the field for a time to go to. The address of the page has UTC.

import { SWITCHED, clockInZone, fieldInZone, inZone, momentOfField, zoneName } from "../frame/times.js";

const WRITTEN = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?Z?$/;

export class ShownZone {
  constructor(view) {
    this.view = view;
    this.moment = NaN; // in the field
    view.times.addEventListener("change", () => this.#look());
    document.addEventListener(SWITCHED, () => this.#look());
    this.#look();
  }

  get #utc() {
    return this.view.times.value === "utc";
  }

  clock(moment) {
    return clockInZone(moment, this.#utc);
  }

  words(moment) {
    return inZone(moment, this.#utc);
  }

  // What the field has: in milliseconds since 1970, and as the address of the page writes it.
  read() {
    this.moment = momentOfField(this.view.time.value, this.#utc);
    return this.moment;
  }

  get written() {
    return `${new Date(this.moment).toISOString().slice(0, 19)}Z`;
  }

  // Put the time of an address into the field. Earlier ones had no Z, and were in UTC too. Returns whether it is one.
  write(text) {
    if (!WRITTEN.test(text ?? "")) return false;
    this.moment = Date.parse(text.endsWith("Z") ? text : `${text}Z`);
    this.#look();
    return this.moment > 0;
  }

  #look() {
    const { time, zoneName: name } = this.view;
    name.textContent = zoneName(this.#utc);
    if (this.moment > 0) time.value = fieldInZone(this.moment, this.#utc);
  }
}
