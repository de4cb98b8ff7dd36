// The address bar follows the state; back and forward go through its steps.
//
// Browsers allow some hundred changes of an address in ten seconds (Safari raises an error beyond 100), and a slider
// makes 60 a second: so the changes of a run are written together.
import { changes, fromHash, isStep, leftOut, toHash } from "./state.js";

const WAIT = 250; // milliseconds between two writes of one run

export class Address {
  constructor(restore) {
    this.run = new Set(); // fields whose changes belong to the last step
    this.late = null; // a state that is to be written, and when
    this.timer = null;
    addEventListener("popstate", () => {
      this.forget();
      this.run.clear();
      restore(fromHash(location.hash), leftOut(location.hash));
    });
    addEventListener("pagehide", () => this.write());
  }

  follow(before, state) {
    const names = changes(before, state);
    if (!names.length) return;
    if (names.every((name) => this.run.has(name))) {
      this.late = state;
      this.timer ??= setTimeout(() => this.write(), WAIT);
    } else {
      this.write();
      history.pushState(null, "", `#${toHash(state)}`);
    }
    this.run = new Set(names.filter((name) => !isStep(name)));
  }

  // What the page came to without anybody's choice is no step.
  settle(state) {
    this.late = state;
    this.write();
  }

  write() {
    if (this.late) history.replaceState(null, "", `#${toHash(this.late)}`);
    this.forget();
  }

  forget() {
    clearTimeout(this.timer);
    this.late = this.timer = null;
  }
}
