//! Starts the page.

import { render } from "preact";
import "./style/index.css";
import { App } from "./ui/App";
import { guardFocus } from "./ui/focus";
import "./ui/theme";

const element = document.getElementById("app");
if (element) {
  element.textContent = "";
  render(<App />, element);
  guardFocus();
}
