"""The doors: browser, REST, WebSocket, command line. They translate and decide nothing."""
