"""Run queue, mailboxes, worker cells, their life cycle, timers and threads."""
