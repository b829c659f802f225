"""An agent of python-a2a, as one has it before: `python examples/migrating/python_a2a_server.py`, with its package."""

from python_a2a import A2AServer, TaskState, TaskStatus, agent, run_server, skill


@agent(name="weather", description="Tells the weather", version="1.0.0")
class Weather(A2AServer):
    @skill(name="forecast", description="The weather of a city", tags=["weather"])
    def forecast(self, city):
        return f"It is sunny in {city}."

    def handle_task(self, task):
        message = task.message or {}
        city = message["parts"][0]["text"] if "parts" in message else message["content"]["text"]
        if not city:
            question = {"role": "agent", "content": {"type": "text", "text": "Which city?"}}
            task.status = TaskStatus(state=TaskState.INPUT_REQUIRED, message=question)
            return task
        task.artifacts = [{"parts": [{"type": "text", "text": self.forecast(city)}]}]
        task.status = TaskStatus(state=TaskState.COMPLETED)
        return task


if __name__ == "__main__":
    run_server(Weather(url="http://localhost:5000"), host="127.0.0.1", port=5000)
