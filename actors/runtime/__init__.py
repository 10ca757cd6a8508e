"""Run queue, mailboxes, worker cells and their life cycle, timers and threads."""
