"""A whole controller on the runtime, small enough to read at one sitting."""
