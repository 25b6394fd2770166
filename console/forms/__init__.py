"""Forms: text from the browser turned into typed values, and refusals put back to the field they are about."""
