"""Expert schedules: functions from a layer to the TIR of one kernel."""
