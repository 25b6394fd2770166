// The frame of every page for a person who is logged in: the command palette, keys, dialogs, messages. Without this file every
// page still works.
import "./dialogs.js";
import "./keys.js";
import "./palette.js";
import "./toasts.js";
