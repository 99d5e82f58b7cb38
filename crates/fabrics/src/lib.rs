//! What a command means: subsystems, controllers, queues, discovery
