"""The interfaces: browser, REST, WebSocket, command line. They translate requests; jobs/ and agents/ decide."""
