"""The handler of an MLServer server: a model by an engine, in each of its workers.

MLServer's REST takes tensors as lists of numbers or as strings in JSON, and not binary: an image as
numbers costs it tens of milliseconds. So tensors come and go as base64, which its own codec reads.
"""

from mlserver import MLModel
from mlserver.codecs import Base64Codec
from mlserver.types import InferenceRequest, InferenceResponse
from served import Worker


class EngineModel(MLModel):
    """One query at a time in each worker."""

    async def load(self) -> bool:
        """Loads the model that the settings name."""
        self._model = Worker(self._settings.parameters.uri, only=self.name).models[self.name]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Runs the model."""
        inputs = {each.name: Base64Codec.decode_input(each)[0] for each in payload.inputs}
        outputs = [
            Base64Codec.encode_output(str(index), [output.tobytes()], use_bytes=False)
            for index, output in enumerate(self._model.infer(inputs))
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
