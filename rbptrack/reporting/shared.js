"use strict";
// Functions of the page of a report (page.js) and of the reading page (reading.js).

// Decodes JSON that `compress_text` in templates.py compressed with gzip and encoded in base64.
function decompress(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const json = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(json).json();
}

// Writes the choices of the reader into the address of the page.
function setAddress(params) {
  try {
    history.replaceState(null, "", `#${params}`);
  } catch {
    // A frame without an address of its own, such as MLflow's, may not change it.
  }
}
